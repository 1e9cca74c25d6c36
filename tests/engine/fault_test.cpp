// SPDX-License-Identifier: Apache-2.0
// A rank dies or falls silent inside the engine: every survivor learns who, where, and soon; its
// engine is poisoned and can be destroyed; nothing stays behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "tests/core/shared_memory.h"
#include "tests/engine/model.h"

namespace outrigger::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Outcome {
  int32_t status;
  int32_t status_after;  // of one more step
  double seconds;        // from the failing call to its return
  char text[400];
};

otr_tensor scalar_grad(float* one) {
  otr_tensor t;
  NEED(otr_tensor_init(one, "float32", 0, nullptr, &t));
  return t;
}

// Runs windows until something fails, with `fault` called at its place; tells how it failed.
Bytes run_until_failure(const Case& c, int32_t rank, otr_comm* comm, const char* place,
                        int32_t victim, const std::function<void()>& fault) {
  otr_engine* engine = nullptr;
  NEED(otr_engine_create(comm, config_of(c).c_str(), &engine));
  std::vector<int64_t> shape{3000};
  std::vector<float> values(3000, 1.0F);
  int64_t ids[4];
  for (int i = 0; i < 4; ++i) {
    otr_tensor initial;
    NEED(otr_tensor_init(values.data(), "float32", 1, shape.data(), &initial));
    NEED(otr_engine_add_parameter(engine, ("p" + std::to_string(i)).c_str(), &initial, nullptr,
                                  &ids[i]));
  }
  const auto at = [&](const char* here) {
    if (rank == victim && std::strcmp(here, place) == 0) fault();
  };
  Outcome outcome{};
  Clock::time_point begin;
  const auto attempt = [&](int32_t status) {
    outcome.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (status != OTR_OK) {
      outcome.status = status;
      std::strncpy(outcome.text, otr_last_error_message(), sizeof outcome.text - 1);
    }
    begin = Clock::now();
    return status == OTR_OK;
  };
  begin = Clock::now();
  at("commit");
  bool alive = attempt(otr_engine_commit(engine));
  for (int i = 0; alive && i < 4; ++i) {
    if (i == 2) at("initial");
    otr_tensor value;
    NEED(otr_tensor_init(values.data(), "float32", 1, shape.data(), &value));
    alive = attempt(otr_engine_set_initial(engine, &ids[i], 1, &value));
  }
  for (int window = 0; alive && window < 1000; ++window) {
    otr_pass* pass = nullptr;
    float one = 1;
    const otr_tensor loss = scalar_grad(&one);
    alive = attempt(otr_pass_begin(engine, &loss, 1, nullptr, &pass));
    for (int i = 4; alive && i-- > 0;) {
      if (window == 2 && i == 1) at("pass");
      otr_tensor grad;
      NEED(otr_tensor_init(values.data(), "float32", 1, shape.data(), &grad));
      alive = attempt(otr_pass_add_grad(pass, ids[i], &grad, nullptr));
    }
    if (alive) alive = attempt(otr_pass_end(pass));
    if (window == 2) at("step");
    if (alive) alive = attempt(otr_engine_step(engine, nullptr));
    otr_pass_destroy(pass);
    if (window == 2) at("between");
  }
  outcome.status_after = otr_engine_step(engine, nullptr);
  otr_engine_destroy(engine);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&outcome);
  return {bytes, bytes + sizeof outcome};
}

Outcome outcome_of(const RankResult& result) {
  Outcome outcome{};
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.bytes.size(), sizeof outcome);
  if (result.bytes.size() == sizeof outcome)
    std::memcpy(&outcome, result.bytes.data(), sizeof outcome);
  return outcome;
}

class Fault : public testing::TestWithParam<std::tuple<const char*, const char*, int32_t>> {};

TEST_P(Fault, KilledRankIsNamedWithinASecond) {
  const auto [place, order, victim] = GetParam();
  Case c{Provider::shm, 3, 2, "bf16 master and states", order, 1, 0.5};
  c.bucket = 3000;
  const auto before = test::named_shared_memory();
  const auto results =
      run_ranks(c.provider, c.world, [&](int32_t rank, otr_context*, otr_comm* comm) {
        return run_until_failure(c, rank, comm, place, victim, [] { kill(getpid(), SIGKILL); });
      });
  for (int32_t rank = 0; rank < c.world; ++rank) {
    if (rank == victim) {
      EXPECT_EQ(results[static_cast<size_t>(rank)].signal, SIGKILL);
      continue;
    }
    const Outcome outcome = outcome_of(results[static_cast<size_t>(rank)]);
    EXPECT_EQ(outcome.status, OTR_E_PEER_DEAD) << outcome.text;
    EXPECT_NE(std::string(outcome.text).find("rank " + std::to_string(victim)), std::string::npos)
        << outcome.text;
    EXPECT_LT(outcome.seconds, 1.0) << outcome.text;
    EXPECT_TRUE(outcome.status_after == OTR_E_POISONED) << outcome.status_after;
  }
  EXPECT_EQ(test::named_shared_memory(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Places, Fault,
    testing::Combine(testing::Values("commit", "initial", "pass", "step", "between"),
                     testing::Values("boundary", "micro_step"), testing::Values(0, 2)));

TEST(Silence, StoppedRankIsNamedAtTheDeadline) {
  const Case c{Provider::shm, 2, 3, "float32", "micro_step", 1, 0.0};
  const auto results = run_ranks(
      c.provider, c.world,
      [&](int32_t rank, otr_context*, otr_comm* comm) {
        return run_until_failure(c, rank, comm, "step", 1, [] {
          const pid_t stopped = getpid();
          const pid_t waker = fork();  // a stopped process cannot wake itself
          if (waker == 0) {
            sleep(3);
            kill(stopped, SIGCONT);
            _exit(0);
          }
          raise(SIGSTOP);
          waitpid(waker, nullptr, 0);
        });
      },
      1.0);
  const Outcome survivor = outcome_of(results[0]);
  EXPECT_EQ(survivor.status, OTR_E_TIMEOUT) << survivor.text;
  EXPECT_NE(std::string(survivor.text).find("rank 1"), std::string::npos) << survivor.text;
  EXPECT_LT(survivor.seconds, 2.5);
  const Outcome woken = outcome_of(results[1]);
  EXPECT_NE(woken.status, OTR_OK);  // it finds the job given up
}

TEST(Leaving, AnEngineDestroyedEarlyIsReported) {
  const Case c{Provider::threads, 2, 2, "float32", "micro_step", 1, 0.0};
  const auto results = run_ranks(
      c.provider, c.world,
      [&](int32_t rank, otr_context*, otr_comm* comm) {
        if (rank == 0) return run_until_failure(c, rank, comm, "", -1, [] {});
        otr_engine* engine = nullptr;
        NEED(otr_engine_create(comm, config_of(c).c_str(), &engine));
        otr_engine_destroy(engine);
        otr_comm_destroy(nullptr);
        return Bytes{};
      },
      5.0);
  const Outcome outcome = outcome_of(results[0]);
  EXPECT_TRUE(outcome.status == OTR_E_PEER_DEAD) << outcome.text;
  EXPECT_NE(std::string(outcome.text).find("rank 1"), std::string::npos) << outcome.text;
}

}  // namespace
}  // namespace outrigger::test

// SPDX-License-Identifier: Apache-2.0
// A process dies while the devices of all are exchanging: the others hear who it was, within a
// second or so, and their devices go on. Processes with a GPU each are children of one without.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "mock_nccl.h"
#include "tests/engine/ranks.h"

namespace outrigger::test {
namespace {

struct Outcome {
  int32_t status;
  double seconds, communicators;
  char text[400];
};

template <typename Function>
Function mock_function(const char* name) {
  void* object = dlopen(std::getenv("OTR_NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function>(dlsym(object, name));
}

// One parameter, one window that goes well, and one in which nothing moves any more.
Bytes die_or_hear(int32_t rank, otr_comm* comm, int32_t victim, const char* stage) {
  const std::string config = std::string(R"({"zero_optimization": {"stage": )") + stage +
                             R"(}, "outrigger": {"exchange": {"backend": "nccl"}}})";
  otr_engine* engine = nullptr;
  NEED(otr_engine_create(comm, config.c_str(), &engine));
  NEED(otr_engine_set_device(engine, OTR_DEVICE_CUDA, rank));
  int64_t shape = 3000, id = 0;
  std::vector<float> values(3000, 1.0F);
  otr_tensor initial;
  NEED(otr_tensor_init(values.data(), "float32", 1, &shape, &initial));
  NEED(otr_engine_add_parameter(engine, "w", &initial, nullptr, &id));
  NEED(otr_engine_commit(engine));
  Outcome outcome{};
  std::thread death;
  for (int window = 0; window < 2; ++window) {
    if (window == 1) {
      mock_function<decltype(&otr_mock_nccl_set)>("otr_mock_nccl_set")("stall", 1);
      if (rank == victim) {
        death = std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          kill(getpid(), SIGKILL);
        });
      }
    }
    otr_pass* pass = nullptr;
    NEED(otr_pass_begin(engine, nullptr, 0, nullptr, &pass));
    otr_tensor slot;
    NEED(otr_pass_get_slot(pass, id, &slot));
    NEED(otr_pass_add_grad(pass, id, &slot, nullptr));
    const auto begin = std::chrono::steady_clock::now();
    outcome.status = otr_pass_end(pass);
    if (outcome.status == OTR_OK) outcome.status = otr_engine_step(engine, nullptr);
    outcome.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::strncpy(outcome.text, otr_last_error_message(), sizeof outcome.text - 1);
    otr_pass_destroy(pass);
    if (window == 0) NEED(outcome.status);
  }
  otr_engine_destroy(engine);
  outcome.communicators =
      mock_function<decltype(&otr_mock_nccl_get)>("otr_mock_nccl_get")("communicators");
  if (death.joinable()) death.join();
  const auto* bytes = reinterpret_cast<const unsigned char*>(&outcome);
  return {bytes, bytes + sizeof outcome};
}

TEST(NcclFault, TheSurvivorsNameTheDead) {
  for (const char* stage : {"1", "2"}) {
    for (const int32_t victim : {0, 2}) {
      const auto results =
          run_ranks(Provider::shm, 3, [&](int32_t rank, otr_context*, otr_comm* comm) {
            return die_or_hear(rank, comm, victim, stage);
          });
      EXPECT_EQ(results[static_cast<size_t>(victim)].signal, SIGKILL);
      for (int32_t rank = 0; rank < 3; ++rank) {
        if (rank == victim) continue;
        const RankResult& result = results[static_cast<size_t>(rank)];
        ASSERT_EQ(result.error, "") << rank;
        Outcome outcome{};
        ASSERT_EQ(result.bytes.size(), sizeof outcome);
        std::memcpy(&outcome, result.bytes.data(), sizeof outcome);
        EXPECT_EQ(outcome.status, OTR_E_PEER_DEAD) << outcome.text;
        EXPECT_NE(std::string(outcome.text).find("rank " + std::to_string(victim) + " (process "),
                  std::string::npos)
            << outcome.text;
        EXPECT_NE(std::string(outcome.text).find("'reduce gradients'"), std::string::npos)
            << outcome.text;
        EXPECT_LT(outcome.seconds, 5);
        EXPECT_EQ(outcome.communicators, 0) << "rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace outrigger::test

// SPDX-License-Identifier: Apache-2.0
// Engines whose ranks exchange over NCCL: values against ranks of the host, wrong use, and what
// becomes of each call that fails, of a rank's device that hangs, and of a connection that breaks.
#include <chrono>
#include <cmath>
#include <thread>

#include "../../sanitizers.h"
#include "nccl_support.h"

namespace {

using namespace otr_test;

std::string by_nccl(int32_t stage, const std::string& reduction = "ranked",
                    const std::string& more = "") {
  return R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.03}}, "gradient_clipping": 0.5, "bf16": {"enabled": true},
             "zero_optimization": {"stage": )" +
         std::to_string(stage) + R"(, "reduce_bucket_size": 2000},
             "outrigger": {"exchange": {"backend": "nccl", "reduction": ")" +
         reduction + "\"}" + more + "}}";
}
std::string by_host(int32_t stage) {
  std::string config = by_nccl(stage);
  return config.replace(config.find("nccl"), 4, "host");
}

// What each rank has after a training, or why it ended.
struct Ended {
  std::vector<Values> values;
  int32_t status = OTR_OK;
  std::string text;
};
template <typename Train>
std::vector<Ended> on_threads(int32_t world, double timeout, const Train& train) {
  const auto context = make_context();
  std::vector<Ended> all(static_cast<size_t>(world));
  run_ranks(
      context.get(), world,
      [&](int32_t rank, otr_comm* comm) {
        Ended& own = all[static_cast<size_t>(rank)];
        try {
          own.values = train(context.get(), comm);
        } catch (const Refused& refused) {
          own.status = refused.status;
          own.text = refused.what();
        }
      },
      timeout);
  return all;
}
std::vector<Ended> trained_by_nccl(int32_t world, const std::string& config, double timeout = 20) {
  return on_threads(world, timeout, [&](otr_context* context, otr_comm* comm) {
    return trained_on_cuda(context, comm, config);
  });
}
std::vector<Ended> trained_by_host(int32_t world, const std::string& config) {
  return on_threads(world, 20,
                    [&](otr_context*, otr_comm* comm) { return trained_on_host(comm, config); });
}
void expect_alike(const std::vector<Ended>& got, const std::vector<Ended>& expected) {
  for (size_t rank = 0; rank < got.size(); ++rank) {
    EXPECT_EQ(got[rank].text, "") << rank;
    EXPECT_EQ(got[rank].values, expected[rank].values) << rank;
  }
}

TEST(NcclEngine, RanksHaveTheHostsBits) {
  for (int32_t world = 1; world <= 4; ++world) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE("world " + std::to_string(world) + ", stage " + std::to_string(stage));
      const double before = mock_nccl().get("operations");
      expect_alike(trained_by_nccl(world, by_nccl(stage)), trained_by_host(world, by_host(stage)));
      EXPECT_EQ(mock_nccl().get("operations") > before, world > 1);
    }
  }
  expect_nothing_held_by_nccl();
  expect_nothing_held();
}

// These gradients' sums are exact in any order, and so are NCCL's.
TEST(NcclEngine, TheLibrarySumsWhereItIsAskedTo) {
  for (int32_t world = 2; world <= 4; ++world) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE("world " + std::to_string(world) + ", stage " + std::to_string(stage));
      const double before = mock_nccl().get("sums");
      expect_alike(trained_by_nccl(world, by_nccl(stage, "nccl")),
                   trained_by_host(world, by_host(stage)));
      EXPECT_GT(mock_nccl().get("sums"), before);
    }
  }
}

TEST(NcclEngine, WrongUseIsRefused) {
  run_ranks(2, [](int32_t, otr_comm* comm) {
    otr_engine* made = nullptr;
    std::string sums_by_host = by_nccl(1, "nccl");
    sums_by_host.replace(sums_by_host.find("nccl"), 4, "host");
    EXPECT_FAILS(OTR_E_CONFIG, otr_engine_create(comm, sums_by_host.c_str(), &made),
                 "outrigger.exchange.reduction", "\"ranked\"", "backend \"nccl\"");
    const Engine on_host(comm, by_nccl(1));
    EXPECT_FAILS(OTR_E_CONFIG, otr_engine_commit(on_host.get()),
                 "outrigger.exchange.backend \"nccl\"", "on the CPU", "otr_engine_set_device");
  });
  auto context = make_context();
  run_ranks(context.get(), 2, [](int32_t rank, otr_comm* comm) {
    const Engine meshed(comm, by_nccl(1, "ranked", R"(, "mesh": {"shard": 1})"));
    EXPECT_OK(otr_engine_set_device(meshed.get(), OTR_DEVICE_CUDA, rank));
    EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_engine_commit(meshed.get()), "outrigger.mesh", "two levels",
                 "\"host\"");
  });
  context.reset();
  run_ranks(
      2,
      [](int32_t rank, otr_comm* comm) {
        const Engine simulated(comm, by_nccl(1));
        EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_engine_set_device(simulated.get(), kSimulated, rank),
                     "outrigger.exchange.backend \"nccl\"", "of type 2", "of type 12", "\"host\"");
      },
      20, "simulated");
  expect_nothing_held_by_nccl();
  expect_nothing_held();
}

using NcclEngineDeathTest = testing::Test;

TEST(NcclEngineDeathTest, NoLibraryIsSaidWhenTheDeviceIsChosen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("OTR_NCCL_LIBRARY", "/nowhere/libnccl.so", 1);
        const auto context = make_context();
        run_ranks(context.get(), 2, [](int32_t rank, otr_comm* comm) {
          const Engine engine(comm, by_nccl(1));
          EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_set_device(engine.get(), OTR_DEVICE_CUDA, rank),
                       "outrigger.exchange.backend", "/nowhere/libnccl.so", "OTR_NCCL_LIBRARY");
          // It can go on without.
          const Engine other(comm, by_host(1));
          EXPECT_OK(otr_engine_set_device(other.get(), OTR_DEVICE_CUDA, rank));
        });
        const auto alone = make_self(context.get());
        const Engine engine(alone.get(), by_nccl(1));
        EXPECT_OK(otr_engine_set_device(engine.get(), OTR_DEVICE_CUDA, 0));  // one rank needs none
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

// Every call of the library fails once: the ranks all end, with an error or the right bits, nothing
// is kept, and the next training works.
TEST(NcclEngine, EachCallThatFailsEndsAllRanks) {
  constexpr int kEvery = outrigger::test::kSanitized ? 3 : 1;
  for (const int32_t stage : {1, 2}) {
    const std::string config = by_nccl(stage);
    const std::vector<Ended> expected = trained_by_nccl(2, config);
    int tried = 0, ended = 0;
    for (int n = 1;; n += kEvery * (n < 30 ? 1 : 7)) {
      mock_nccl().set("fail_with", 2);
      mock_nccl().set("fail_in", n);
      const std::vector<Ended> all = trained_by_nccl(2, config);
      const std::string failed = mock_nccl().failed();
      mock_nccl().set("fail_in", 0);
      if (failed.empty()) break;
      ++tried;
      SCOPED_TRACE(failed + ", call " + std::to_string(n) + ": " + all[0].text + " / " +
                   all[1].text);
      if (all[0].text.empty() && all[1].text.empty()) {
        expect_alike(all, expected);  // what gives something back
      } else {
        ++ended;
        for (const Ended& own : all) {  // also who was told
          EXPECT_NE(own.text.find("unhandled system error (2)"), std::string::npos) << own.text;
        }
      }
      expect_nothing_held_by_nccl();
      expect_nothing_held();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(tried, 30 / kEvery);
    EXPECT_GT(ended, tried / 2);
    expect_alike(trained_by_nccl(2, config), expected);
  }
}

// All ranks have come, and a device does not come to the end.
TEST(NcclEngine, ADeviceThatHangsMeetsTheDeadline) {
  for (const int32_t stage : {0, 1, 2}) {
    mock_nccl().set("stall", 1);
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Ended> all = trained_by_nccl(3, by_nccl(stage), 0.5);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    mock_nccl().set("stall", 0);
    for (const Ended& own : all) {
      EXPECT_EQ(own.status, OTR_E_TIMEOUT) << own.text;
      // In the background: a rank whose host waits for its device then comes late to the step.
      const char* const late = stage < 2 ? "the devices were not over with 'reduce gradients'" : "";
      EXPECT_NE(own.text.find(late), std::string::npos) << own.text;
      EXPECT_NE(own.text.find("within 0.5 s"), std::string::npos) << own.text;
    }
    EXPECT_LT(took.count(), 10);
    expect_nothing_held_by_nccl();
    expect_nothing_held();
  }
}

// One parameter on device `rank`, committed.
void declare_one(const Engine& engine, int32_t rank, double first) {
  EXPECT_OK(otr_engine_set_device(engine.get(), OTR_DEVICE_CUDA, rank));
  Values values = dyadic(500, 3);
  values[0] = first;
  const Tensor initial(Shape{500}, values);
  int64_t id = 0;
  EXPECT_OK(otr_engine_add_parameter(engine.get(), "w", &initial, nullptr, &id));
  EXPECT_OK(otr_engine_commit(engine.get()));
}
void end_a_pass(const Engine& engine, otr_context* context, int32_t rank, double gradient) {
  otr_pass* pass = nullptr;
  EXPECT_OK(otr_pass_begin(engine.get(), nullptr, 0, nullptr, &pass));
  const Owned<otr_pass> owned(pass);
  otr_tensor slot;
  EXPECT_OK(otr_pass_get_slot(pass, 0, &slot));
  const Tensor here(Shape{500}, Values(500, gradient * (rank + 1)), "bfloat16");
  EXPECT_OK(otr_tensor_copy(context, &slot, &here));
  EXPECT_OK(otr_pass_add_grad(pass, 0, &slot, nullptr));
  EXPECT_OK(otr_pass_end(pass));
}

// Its devices are at work, in the background, and do not come to the end.
TEST(NcclEngine, AnEngineGoesWithoutWaitingForItsDevices) {
  auto context = make_context();
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, by_nccl(2));
    declare_one(engine, rank, 1);
    EXPECT_OK(otr_comm_barrier(comm));
    mock_nccl().set("stall", 1);
    otr_pass* pass = nullptr;
    EXPECT_OK(otr_pass_begin(engine.get(), nullptr, 0, nullptr, &pass));
    EXPECT_OK(otr_pass_end(pass));
    otr_pass_destroy(pass);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    engine.reset();
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  mock_nccl().set("stall", 0);
  EXPECT_LT(took.count(), 10);
  context.reset();
  expect_nothing_held_by_nccl();
  expect_nothing_held();
}

// Two engines of a process exchange in the background at the same time.
TEST(NcclEngine, EnginesBesideEachOtherKeepTheirSums) {
  auto context = make_context();
  run_ranks(context.get(), 3, [&](int32_t rank, otr_comm* comm) {
    const Engine one(comm, by_nccl(2)), other(comm, by_nccl(2));
    declare_one(one, rank, 0.5);
    declare_one(other, rank, 0.25);
    for (int window = 0; window < 3; ++window) {
      end_a_pass(one, context.get(), rank, 1);
      end_a_pass(other, context.get(), rank, 4);
      const otr_step_report of_other = other.step(), of_one = one.step();
      // Means over the ranks: 2 and 8, of 500 elements.
      EXPECT_NEAR(of_one.grad_norm, 2 * std::sqrt(500), 1e-6);
      EXPECT_NEAR(of_other.grad_norm, 8 * std::sqrt(500), 1e-6);
    }
    EXPECT_OK(otr_engine_finalize(one.get()));
    EXPECT_OK(otr_engine_finalize(other.get()));
  });
  context.reset();
  expect_nothing_held_by_nccl();
  expect_nothing_held();
}

TEST(NcclEngine, AConnectionThatBreaksIsAPeersDeath) {
  auto context = make_context();
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    const Engine engine(comm, by_nccl(1));
    declare_one(engine, rank, 1);
    EXPECT_OK(otr_comm_barrier(comm));
    mock_nccl().set("async_error", 6);
    otr_pass* pass = nullptr;
    EXPECT_OK(otr_pass_begin(engine.get(), nullptr, 0, nullptr, &pass));
    EXPECT_OK(otr_pass_end(pass));
    otr_pass_destroy(pass);
    const int32_t status = otr_engine_step(engine.get(), nullptr);
    const std::string text = otr_last_error_message();
    EXPECT_TRUE(status == OTR_E_PEER_DEAD || status == OTR_E_ABORTED) << text;
    EXPECT_NE(text.find("remote process exited"), std::string::npos) << text;
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_step(engine.get(), nullptr), "remote process exited");
  });
  context.reset();
  mock_nccl().set("async_error", 0);
  expect_nothing_held_by_nccl();
  expect_nothing_held();
}

}  // namespace

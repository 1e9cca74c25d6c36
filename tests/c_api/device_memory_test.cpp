// SPDX-License-Identifier: Apache-2.0
// A device's memory: what a window keeps there, and a rank that has too little of it.
#include <array>
#include <atomic>
#include <cmath>

#include "blocking.h"
#include "device_support.h"

namespace {

using namespace otr_test;

int64_t scratch_peak(const Engine& engine) {
  std::vector<otr_memory_entry> entries(64);
  entries[0].struct_size = sizeof entries[0];
  size_t count = entries.size();
  EXPECT_OK(otr_engine_memory(engine.get(), entries.data(), &count));
  int64_t peak = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::string_view(entries[i].purpose) == "gradient scratch") {
      peak = std::max(peak, entries[i].peak_bytes);
    }
  }
  return peak;
}

// What a contribution is converted in is given back before the next one needs as much again: many
// contributions need no more than a few, of however many passes they are.
TEST(DeviceMemory, ScratchDoesNotGrowWithTheWindow) {
  constexpr int64_t kCount = 4096;
  for (const char* order : {"boundary", "micro_step"}) {
    for (const char* extra : {"", R"(, "offload_optimizer": {"device": "cpu"})"}) {
      for (const bool by_slot : {false, true}) {
        SCOPED_TRACE(std::string(order) + extra + (by_slot ? " slots" : " tensors"));
        const auto peak_after = [&](int32_t contributions) {
          DeviceSolo solo(R"({"bf16": {"enabled": true}, "outrigger": {"reduction_order": ")" +
                          std::string(order) + R"("}, "zero_optimization": {"stage": 1)" + extra +
                          "}}");
          otr_param_options options = param_options();
          options.contributions = 4;  // further ones take another way
          const int64_t id = solo.engine.add("w", {kCount}, Values(kCount, 1), &options);
          solo.engine.commit();
          const DeviceTensor grad(solo.context.get(), simulated(), Tensor::filled({kCount}, 1));
          const DeviceTensor narrow(solo.context.get(), simulated(),
                                    Tensor::filled({kCount}, 1, "bfloat16"));
          const Owned<otr_pass> pass = solo.engine.begin();
          for (int32_t i = 0; i < contributions; ++i) {
            if (!by_slot) {
              EXPECT_OK(otr_pass_add_grad(pass.get(), id, &grad, nullptr));
              continue;
            }
            otr_tensor slot;
            EXPECT_OK(otr_pass_get_slot(pass.get(), id, &slot));
            EXPECT_OK(otr_tensor_copy(solo.context.get(), &slot, &narrow));
            EXPECT_OK(otr_pass_add_grad(pass.get(), id, &slot, nullptr));
          }
          Engine::end(pass);
          const int64_t peak = scratch_peak(solo.engine);
          EXPECT_EQ(solo.engine.step().grad_norm, std::sqrt(kCount) * contributions);
          return peak;
        };
        EXPECT_LE(peak_after(24), 5 * kCount * 2) << "some are in flight beside each other";
      }
    }
  }
}

// Rank 1's allocations fail one after the other: whichever it is, rank 0 hears of it at once, and
// not when it has waited for the communicator's timeout.
void expect_all_hear(int32_t stage, bool in_acquire) {
  std::atomic<bool> succeeds{false};
  int failures = 0;
  for (int allocation = 1; !succeeds; ++allocation) {
    SCOPED_TRACE("allocation " + std::to_string(allocation));
    ASSERT_LT(allocation, 100);
    std::array<int32_t, 2> statuses{};
    std::atomic<int> over{0};
    run_ranks(
        2,
        [&](int32_t rank, otr_comm* comm) {
          const auto context = device_context();
          Engine engine(comm, on_stage(stage, R"(}, "bf16": {"enabled": true)"));
          ASSERT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
          const int64_t id = engine.add("w", {2000}, Values(2000, 1));
          if (in_acquire) engine.commit();
          if (rank == 1) {
            EXPECT_OK(
                otr_device_set_value(context.get(), kSimulated, 1, "fail_allocation", allocation));
          }
          otr_call_info info;
          ASSERT_OK(otr_call_info_init(&info, sizeof info));
          info.flags = OTR_ACQUIRE_FLOAT32;
          otr_tensor weight;
          const auto begin = Clock::now();
          const int32_t status = in_acquire
                                     ? otr_engine_acquire(engine.get(), &id, 1, &info, &weight)
                                     : otr_engine_commit(engine.get());
          const std::string text = otr_last_error_message();
          statuses.at(static_cast<size_t>(rank)) = status;
          EXPECT_LT(seconds_since(begin), 5) << "rank " << rank;
          if (status != OTR_OK) {
            EXPECT_NE(text.find("simulated device 1"), std::string::npos) << text;
          }
          ++over;
          while (over < 2) pause(1);  // nobody hears of it by an engine's destroy
        },
        20, "simulated");
    succeeds = statuses[1] == OTR_OK;
    if (succeeds) break;
    EXPECT_EQ(statuses[1], OTR_E_OUT_OF_MEMORY);
    // What comes after the last operation of a call concerns rank 0 only at its next one.
    EXPECT_TRUE(statuses[0] == OTR_E_ABORTED || statuses[0] == OTR_E_OUT_OF_MEMORY || in_acquire)
        << otr_status_name(statuses[0]);
    ++failures;
  }
  EXPECT_GE(failures, in_acquire ? 2 : 4);
}

TEST(DeviceMemory, AllRanksHearOfACommitThatOneHasNoMemoryFor) {
  for (const int32_t stage : {0, 1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    expect_all_hear(stage, false);
  }
}

TEST(DeviceMemory, AllRanksHearOfAnAcquireThatOneHasNoMemoryFor) { expect_all_hear(3, true); }

// The size of a commit's blocks, and not of the first of them.
TEST(DeviceMemory, AllRanksHearOfAFullDevice) {
  for (const int64_t bytes : {0, 4096, 1 << 16, 1 << 18}) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes");
    std::atomic<int> over{0};
    run_ranks(
        2,
        [&](int32_t rank, otr_comm* comm) {
          const auto context = device_context();
          Engine engine(comm, on_stage(2));
          ASSERT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
          engine.add("w", {1 << 16}, Values(1 << 16, 1));
          if (rank == 1) {
            EXPECT_OK(otr_device_set_value(context.get(), kSimulated, 1, "memory_bytes",
                                           static_cast<double>(bytes)));
          }
          const auto begin = Clock::now();
          const int32_t status = otr_engine_commit(engine.get());
          const std::string text = otr_last_error_message();
          EXPECT_LT(seconds_since(begin), 5) << "rank " << rank;
          EXPECT_TRUE(status == OTR_E_OUT_OF_MEMORY || (rank == 0 && status == OTR_E_ABORTED))
              << otr_status_name(status);
          EXPECT_NE(text.find("simulated device 1"), std::string::npos) << text;
          ++over;
          while (over < 2) pause(1);
        },
        20, "simulated");
  }
}

}  // namespace

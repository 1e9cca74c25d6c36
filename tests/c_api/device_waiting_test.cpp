// SPDX-License-Identifier: Apache-2.0
// At stage 3 on a device otr_engine_acquire is collective: it can be interrupted, and made again.
#include <atomic>

#include "blocking.h"
#include "device_support.h"

namespace {

using namespace otr_test;

struct Button {
  std::atomic<bool> pressed{false};
  static int32_t ask(void* user_data) { return static_cast<Button*>(user_data)->pressed ? 1 : 0; }
};

// Three parameters, two of them in a piece on each of two ranks.
struct Stage3 {
  static constexpr int64_t kCount = 1024;
  static constexpr int64_t kIds[3] = {0, 1, 2};
  Stage3(int32_t rank, otr_comm* comm)
      : engine(comm, on_stage(3, R"(, "reduce_bucket_size": 1024}, "bf16": {"enabled": true)")) {
    EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
    engine.add("a", {kCount}, dyadic(kCount, 1));
    engine.add("b", {7}, dyadic(7, 2));
    engine.add("c", {kCount}, dyadic(kCount, 3));
    engine.commit();
  }
  int32_t acquire(otr_tensor* out, int64_t count = 3, uint32_t flags = OTR_ACQUIRE_FLOAT32) const {
    otr_call_info info;
    EXPECT_OK(otr_call_info_init(&info, sizeof info));
    info.flags = flags;
    return otr_engine_acquire(engine.get(), kIds, count, &info, out);
  }
  void expect_values(otr_context* context, const otr_tensor* tensors) const {
    EXPECT_EQ(values_there(context, tensors[0]), dyadic(kCount, 1));
    EXPECT_EQ(values_there(context, tensors[1]), dyadic(7, 2));
    EXPECT_EQ(values_there(context, tensors[2]), dyadic(kCount, 3));
  }
  void expect_training(otr_context* context, int32_t rank) const {
    const DeviceTensor grad(context, simulated(rank), Tensor::filled({kCount}, 1));
    const Owned<otr_pass> pass = engine.begin();
    EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &grad, nullptr));
    Engine::end(pass);
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
    EXPECT_FAILS(OTR_E_STATE, otr_engine_release(engine.get(), kIds, 1, nullptr), "not acquired");
  }
  Engine engine;
};

int64_t windows_on_device(const Engine& engine) {
  return resident_bytes(engine, kSimulated, "acquired copies");
}

// Rank 0 is interrupted before rank 1 has come, and again where rank 1 lags behind in the middle.
TEST(DeviceAcquire, InterruptedItIsMadeAgain) {
  Button button;
  std::atomic<bool> goes_on{false};
  const auto context = make_context(1, Button::ask, &button);
  ASSERT_OK(otr_context_load_plugin(context.get(), "simulated"));
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    const Stage3 s(rank, comm);
    otr_tensor tensors[3];
    if (rank == 1) {
      wait_for(goes_on);
      EXPECT_OK(otr_device_set_value(context.get(), kSimulated, 1, "copy_latency", 0.2));
      EXPECT_OK(s.acquire(tensors));
      EXPECT_OK(otr_device_set_value(context.get(), kSimulated, 1, "copy_latency", 0));
    } else {
      for (int i = 0; i < 2; ++i) {
        button.pressed = true;
        const auto begin = Clock::now();
        EXPECT_FAILS(OTR_E_INTERRUPTED, s.acquire(tensors), "acquire \"", "rank 1");
        EXPECT_LT(seconds_since(begin), 0.5);
        EXPECT_EQ(tensors[0].data, nullptr);
        EXPECT_OK(otr_engine_check(s.engine.get()));
        EXPECT_FAILS(OTR_E_STATE, s.acquire(tensors, 2), "interrupted", "same");
        EXPECT_FAILS(OTR_E_STATE, otr_engine_release(s.engine.get(), Stage3::kIds, 1, nullptr),
                     "otr_engine_acquire", "again");
        EXPECT_FAILS(OTR_E_STATE, otr_engine_finalize(s.engine.get()), "otr_engine_acquire");
      }
      goes_on = true;
      int interrupts = 0;
      int32_t status = OTR_OK;
      while ((status = s.acquire(tensors)) == OTR_E_INTERRUPTED) {
        EXPECT_EQ(tensors[0].data, nullptr);
        EXPECT_EQ(tensors[2].data, nullptr);
        ++interrupts;
        ASSERT_LT(interrupts, 1000);
      }
      EXPECT_OK(status);
      EXPECT_GE(interrupts, 4) << "at rank 1's piece of \"a\" and of \"c\", among others";
      button.pressed = false;
    }
    s.expect_values(context.get(), tensors);
    EXPECT_OK(otr_engine_release(s.engine.get(), Stage3::kIds, 3, nullptr));
    EXPECT_EQ(windows_on_device(s.engine), 0) << "nothing is kept of the interrupted calls";
    EXPECT_OK(s.acquire(tensors, 3, 0));
    s.expect_training(context.get(), rank);
  });
}

// An interrupted acquire that is not made again: destroy and abort work.
TEST(DeviceAcquire, InterruptedItCanBeGivenUp) {
  Button button;
  std::atomic<bool> given_up{false};
  const auto context = make_context(1, Button::ask, &button);
  ASSERT_OK(otr_context_load_plugin(context.get(), "simulated"));
  run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
    Stage3 s(rank, comm);
    otr_tensor tensors[3];
    if (rank == 0) {
      button.pressed = true;
      EXPECT_FAILS(OTR_E_INTERRUPTED, s.acquire(tensors), "rank 1");
      button.pressed = false;
      EXPECT_OK(otr_engine_abort(s.engine.get(), "given up"));
      s.engine.reset();
      given_up = true;
      return;
    }
    wait_for(given_up);
    EXPECT_FAILS(OTR_E_ABORTED, s.acquire(tensors), "rank 0", "given up");
  });
}

// Refused on one rank, it has not begun there, and the others wait for it.
TEST(DeviceAcquire, RefusedOnOneRankItIsMadeAsItShouldBe) {
  run_ranks(
      2,
      [](int32_t rank, otr_comm* comm) {
        const auto context = device_context();
        const Stage3 s(rank, comm);
        otr_tensor tensors[3];
        if (rank == 1) {
          pause(60);
          const int64_t unknown[2] = {0, 9};
          EXPECT_FAILS(OTR_E_NOT_FOUND,
                       otr_engine_acquire(s.engine.get(), unknown, 2, nullptr, tensors), "9");
          EXPECT_FAILS(OTR_E_ARGUMENT, s.acquire(tensors, 3, 1U << 20), "flags");
          EXPECT_FAILS(OTR_E_ARGUMENT, s.acquire(nullptr), "out_tensors");
          otr_call_info info;
          ASSERT_OK(otr_call_info_init(&info, sizeof info));
          info.stream = 12345;
          EXPECT_FAILS(OTR_E_ARGUMENT,
                       otr_engine_acquire(s.engine.get(), Stage3::kIds, 3, &info, tensors),
                       "12345");
          EXPECT_OK(otr_engine_check(s.engine.get()));
        }
        EXPECT_OK(s.acquire(tensors));
        s.expect_values(context.get(), tensors);
        s.expect_training(context.get(), rank);
      },
      20, "simulated");
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Slots: places of the library into which the host writes a gradient.
#include <sys/mman.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "support.h"

namespace {

using namespace otr_test;

constexpr int64_t kCount = 600;

class Slot : public testing::TestWithParam<Kind> {
 protected:
  Slot() : solo_(config_of(GetParam())) {
    solo_.engine.add("a", {kCount}, Values(kCount, 1));
    solo_.engine.add("b", {20, 30}, Values(kCount, 1));
    solo_.engine.add("empty", {0}, {});
    solo_.engine.commit();
    pass_ = solo_.engine.begin();
  }
  otr_tensor slot(int64_t id) {
    otr_tensor t = {};
    EXPECT_OK(otr_pass_get_slot(pass_.get(), id, &t));
    return t;
  }
  void fill(const otr_tensor& t, double value) {
    for (int64_t i = 0; i < kCount; ++i) set_value(t, i, value);
  }
  void hand_back(int64_t id, const otr_tensor& t) {
    EXPECT_OK(otr_pass_add_grad(pass_.get(), id, &t, nullptr));
  }
  void add(int64_t id, double value) {
    Engine::add(pass_, id, solo_.engine.shape_of(id), Values(kCount, value));
  }
  // The gradient of "a" is this everywhere.
  void expect_sum(double sum) {
    Engine::end(pass_);
    const auto report = solo_.engine.step();
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(report.grad_norm, std::sqrt(kCount * sum * sum));
  }
  Solo solo_;
  Owned<otr_pass> pass_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, Slot, testing::ValuesIn(kKinds), name_of);

TEST_P(Slot, HasTheComputeDtypeAndTheShape) {
  const otr_tensor t = slot(1);
  const std::string_view dtype = compute_dtype(GetParam());
  const bool wide = dtype == "float32";
  EXPECT_EQ(t.dtype.code, dtype == "bfloat16" ? OTR_DTYPE_BFLOAT : OTR_DTYPE_FLOAT);
  EXPECT_EQ(t.dtype.bits, wide ? 32 : 16);
  EXPECT_EQ(Shape(t.shape, t.shape + t.ndim), (Shape{20, 30}));
  EXPECT_NE(t.data, nullptr);
  const otr_tensor empty = slot(2);
  EXPECT_EQ(empty.ndim, 1);
  EXPECT_EQ(empty.shape[0], 0);
  hand_back(2, empty);
}

TEST_P(Slot, HandedBackIsTheGradient) {
  const otr_tensor t = slot(0);
  fill(t, 0.5);
  hand_back(0, t);
  expect_sum(0.5);
}

TEST_P(Slot, OneAtATimeForEachParameter) {
  const otr_tensor t = slot(0);
  otr_tensor second;
  EXPECT_FAILS(OTR_E_STATE, otr_pass_get_slot(pass_.get(), 0, &second), "\"a\"", "slot");
  EXPECT_EQ(second.data, nullptr);
  const otr_tensor other = slot(1);  // of another parameter it is fine
  EXPECT_NE(other.data, t.data);
  fill(t, 1);
  hand_back(0, t);
  const otr_tensor third = slot(0);  // and after it was handed back
  fill(third, 2);
  hand_back(0, third);
  expect_sum(3);
}

TEST_P(Slot, ThenTensor) {
  const otr_tensor t = slot(0);
  fill(t, 1);
  hand_back(0, t);
  add(0, 2);
  expect_sum(3);
}

TEST_P(Slot, TensorThenSlot) {
  add(0, 2);
  const otr_tensor t = slot(0);
  fill(t, 1);
  hand_back(0, t);
  expect_sum(3);
}

TEST_P(Slot, TensorWhileTheSlotIsOut) {
  const otr_tensor t = slot(0);
  fill(t, 1);
  add(0, 2);
  add(0, 4);
  for (const double value : values_of(t)) {
    ASSERT_EQ(value, 1) << "the slot was touched while it was out";
  }
  hand_back(0, t);
  expect_sum(7);
}

// Alone in its bucket, which must not go out while the host may still be writing into it.
TEST_P(Slot, TensorThatCompletesTheBucketWhileTheSlotIsOut) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("alone", {kCount}, Values(kCount, 1));
  solo.engine.commit();
  pass_ = solo.engine.begin();
  const otr_tensor t = slot(0);
  Engine::add(pass_, 0, {kCount}, Values(kCount, 4));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fill(t, 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const double value : values_of(t)) {
    ASSERT_EQ(value, 3) << "the slot was touched while it was out";
  }
  hand_back(0, t);
  Engine::end(pass_);
  EXPECT_EQ(solo.engine.step().grad_norm, std::sqrt(kCount * 49.0));
}

TEST_P(Slot, TensorWhileTheSlotIsOutAndNeverComesBack) {
  const otr_tensor t = slot(0);
  fill(t, NAN);
  add(0, 2);
  add(0, 4);
  expect_sum(6);
}

// Its memory is the library's again: the call says so, and touches neither it nor what is there
// now.
TEST_P(Slot, HandedInAfterItsPassEnded) {
  void* const no_memory = mmap(nullptr, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(no_memory, MAP_FAILED);
  for (const bool abandoned : {false, true}) {
    pass_ = solo_.engine.begin();
    otr_tensor t = slot(0);
    fill(t, NAN);
    add(1, 1);
    EXPECT_OK(abandoned ? otr_pass_abandon(pass_.get()) : otr_pass_end(pass_.get()));
    EXPECT_FAILS(OTR_E_STATE, otr_pass_add_grad(pass_.get(), 0, &t, nullptr), "the pass has ended");
    t.data = no_memory;
    EXPECT_FAILS(OTR_E_STATE, otr_pass_add_grad(pass_.get(), 0, &t, nullptr), "the pass has ended");
    EXPECT_FAILS(OTR_E_STATE, otr_pass_get_slot(pass_.get(), 0, &t), "the pass has ended");
    const auto report = solo_.engine.step();
    EXPECT_EQ(report.outcome, abandoned ? OTR_STEP_SKIPPED : OTR_STEP_APPLIED);
    if (!abandoned) {
      EXPECT_EQ(report.grad_norm, std::sqrt(static_cast<double>(kCount)));
    }
  }
  munmap(no_memory, 1 << 16);
}

TEST_P(Slot, IsRefusedForUnknownParameters) {
  otr_tensor t;
  for (const int64_t bad : {int64_t{3}, int64_t{-1}}) {
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_pass_get_slot(pass_.get(), bad, &t), std::to_string(bad));
    const Tensor grad = Tensor::filled({kCount}, 1);
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_pass_add_grad(pass_.get(), bad, &grad, nullptr),
                 std::to_string(bad));
  }
}

// A slot is row-major in the compute dtype: described otherwise, its bytes would mean something
// else.
TEST_P(Slot, HandedBackAsSomethingElse) {
  const otr_tensor given = slot(1);
  fill(given, 1);
  otr_tensor t = given;
  int64_t transposed[2] = {1, 20};
  t.strides = transposed;
  EXPECT_FAILS(OTR_E_SHAPE, otr_pass_add_grad(pass_.get(), 1, &t, nullptr), "\"b\"");
  t = given;
  const bool half = std::string_view(compute_dtype(GetParam())) == "float16";
  t.dtype = {half ? uint8_t{OTR_DTYPE_BFLOAT} : uint8_t{OTR_DTYPE_FLOAT}, 16, 1};
  EXPECT_FAILS(OTR_E_DTYPE, otr_pass_add_grad(pass_.get(), 1, &t, nullptr), "\"b\"");
  int64_t shape[2] = {30, 20};
  t = given;
  t.shape = shape;
  EXPECT_FAILS(OTR_E_SHAPE, otr_pass_add_grad(pass_.get(), 1, &t, nullptr), "\"b\"");
  hand_back(1, given);  // it is still out
  Engine::end(pass_);
  EXPECT_EQ(solo_.engine.step().grad_norm, std::sqrt(static_cast<double>(kCount)));
}

TEST_P(Slot, InEveryPassOfAWindow) {
  Solo solo(config_of(GetParam(), 3));
  solo.engine.add("a", {kCount}, Values(kCount, 1));
  solo.engine.commit();
  for (int i = 0; i < 6; ++i) {
    pass_ = solo.engine.begin();
    const otr_tensor t = slot(0);
    fill(t, 1 << (i % 3));
    hand_back(0, t);
    Engine::end(pass_);
    const auto report = solo.engine.step();
    if (i % 3 == 2) {
      EXPECT_EQ(report.grad_norm, std::sqrt(kCount * 49.0));
    }
  }
}

// Asking never waits: even without a pause there is always a place.
TEST_P(Slot, ManyPassesOfManyBuckets) {
  Solo solo(config_of(GetParam(), 1, "", R"("bucket_buffers": 1)"));
  constexpr int64_t kParameters = 20;
  for (int64_t p = 0; p < kParameters; ++p)
    solo.engine.add(("p" + std::to_string(p)).c_str(), {kCount}, Values(kCount, 1));
  solo.engine.commit();
  for (int i = 0; i < 10; ++i) {
    pass_ = solo.engine.begin();
    for (int64_t p = kParameters; p-- > 0;) {
      const otr_tensor t = slot(p);
      fill(t, static_cast<double>(p % 3));
      hand_back(p, t);
    }
    Engine::end(pass_);
    double squares = 0;
    for (int64_t p = 0; p < kParameters; ++p)
      squares += static_cast<double>(kCount * (p % 3) * (p % 3));
    EXPECT_EQ(solo.engine.step().grad_norm, std::sqrt(squares));
  }
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// A backward pass: output gradients out, and what becomes of a pass that was not ended.
#include <cmath>

#include "support.h"

namespace {

using namespace otr_test;

class Pass : public testing::TestWithParam<Kind> {
 protected:
  // Two parameters in buckets of their own, and accumulation if asked for.
  std::unique_ptr<Solo> make(int32_t accumulation = 1, const std::string& extra = "",
                             const std::string& own = "") {
    auto solo = std::make_unique<Solo>(config_of(GetParam(), accumulation, extra, own));
    solo->engine.add("a", {600}, dyadic(600, 1));
    solo->engine.add("b", {600}, dyadic(600, 2));
    solo->engine.commit();
    return solo;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Pass, testing::ValuesIn(kKinds), name_of);

TEST_P(Pass, ScalesOutputGradients) {
  for (const int32_t accumulation : {1, 4}) {
    const auto solo = make(accumulation);
    const double factor = 1.0 / accumulation;
    const Tensor one({}, {1});
    const Tensor matrix({2, 3}, dyadic(6, 1), "float64", {1, 2});
    const Tensor empty({0, 5}, {}, "bfloat16");
    const Tensor half({4}, dyadic(4, 2), "float16");
    const otr_tensor outputs[4] = {one.get(), matrix.get(), empty.get(), half.get()};
    otr_pass* pass = nullptr;
    ASSERT_OK(otr_pass_begin(solo->engine.get(), outputs, 4, nullptr, &pass));
    const Owned<otr_pass> owned(pass);
    double scale = 0;
    EXPECT_OK(otr_pass_get_scale(pass, &scale));
    EXPECT_EQ(scale, factor);
    for (int64_t i = 0; i < 4; ++i) {
      otr_tensor grad;
      ASSERT_OK(otr_pass_get_output_grad(pass, i, &grad));
      EXPECT_EQ(grad.dtype.code, OTR_DTYPE_FLOAT);
      EXPECT_EQ(grad.dtype.bits, 32);
      EXPECT_EQ(Shape(grad.shape, grad.shape + grad.ndim),
                Shape(outputs[i].shape, outputs[i].shape + outputs[i].ndim));
      Values expected = values_of(outputs[i]);
      for (double& v : expected) v *= factor;
      EXPECT_EQ(values_of(grad), expected);
      if (grad.strides != nullptr) {
        int64_t stride = 1;
        for (int32_t d = grad.ndim; d-- > 0; stride *= grad.shape[d]) {
          EXPECT_EQ(grad.strides[d], stride);
        }
      }
    }
    otr_tensor grad;
    for (const int64_t bad : {int64_t{4}, int64_t{-1}}) {
      EXPECT_FAILS(OTR_E_ARGUMENT, otr_pass_get_output_grad(pass, bad, &grad), std::to_string(bad),
                   "4");
    }
  }
}

TEST_P(Pass, OutputGradientsAreCopies) {
  const auto solo = make();
  Tensor output({2}, {3, 4});
  otr_pass* pass = nullptr;
  ASSERT_OK(otr_pass_begin(solo->engine.get(), &output, 1, nullptr, &pass));
  Owned<otr_pass> owned(pass);
  set_value(output.get(), 0, -1);
  otr_tensor grad, again;
  ASSERT_OK(otr_pass_get_output_grad(pass, 0, &grad));
  EXPECT_EQ(values_of(grad), (Values{3, 4}));
  set_value(grad, 1, 77);  // the host may overwrite it
  ASSERT_OK(otr_pass_get_output_grad(pass, 0, &again));
  EXPECT_EQ(grad.data, again.data);
  Engine::end(owned);
  solo->engine.step();
  EXPECT_EQ(values_of(grad), (Values{3, 77})) << "its memory stays until destroy";
  ASSERT_OK(otr_pass_get_output_grad(pass, 0, &again)) << "after the end, too";
  solo->engine.reset();
  EXPECT_EQ(values_of(grad), (Values{3, 77}));
}

TEST_P(Pass, WithoutAGradientCountsAsZero) {
  const auto solo = make();
  const auto before = solo->engine.everything();
  solo->engine.pass({});
  const auto report = solo->engine.step();
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(report.grad_norm, 0);
  EXPECT_EQ(report.updates, 0);
  EXPECT_EQ(report.applied_steps, 1);
  EXPECT_EQ(solo->engine.everything(), before) << "unused parameters are left alone by default";
}

TEST_P(Pass, UnusedParametersAreSkippedOrZero) {
  for (const bool zero : {false, true}) {
    const auto solo =
        make(1, "", zero ? R"("unused_parameters": "zero")" : R"("unused_parameters": "skip")");
    solo->engine.pass({{0, Values(600, 1)}, {1, Values(600, 1)}});
    solo->engine.step();
    const Values w = solo->engine.read(1), m = solo->engine.read(1, OTR_VALUE_EXP_AVG),
                 v = solo->engine.read(1, OTR_VALUE_EXP_AVG_SQ);
    solo->engine.pass({{0, Values(600, 1)}});
    EXPECT_EQ(solo->engine.step().updates, zero ? 1200 : 600);
    if (zero) {
      for (const double value : solo->engine.read(1, OTR_VALUE_EXP_AVG)) {
        EXPECT_NEAR(value, 0.9 * m[0], m[0] / 128);
      }
      EXPECT_NE(solo->engine.read(1), w);
    } else {
      EXPECT_EQ(solo->engine.read(1), w);
      EXPECT_EQ(solo->engine.read(1, OTR_VALUE_EXP_AVG), m);
      EXPECT_EQ(solo->engine.read(1, OTR_VALUE_EXP_AVG_SQ), v);
    }
  }
}

// ---- Abandoned passes
// -----------------------------------------------------------------------------

TEST_P(Pass, AbandonedWithNothingAddedLeavesNoTrace) {
  const auto plain = make(), with = make();
  for (const auto* solo : {&plain, &with}) {
    if (solo == &with) {
      auto abandoned = (*solo)->engine.begin();
      abandoned.reset();
      abandoned = (*solo)->engine.begin();
      otr_tensor slot;  // asked for, written, never handed back: nothing was added
      ASSERT_OK(otr_pass_get_slot(abandoned.get(), 0, &slot));
      for (int64_t i = 0; i < 600; ++i) set_value(slot, i, NAN);
      abandoned.reset();
    }
    (*solo)->engine.pass({{0, dyadic(600, 7)}});
    const auto report = (*solo)->engine.step();
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(report.reason, OTR_SKIP_NONE);
  }
  EXPECT_EQ(plain->engine.everything(), with->engine.everything());
}

TEST_P(Pass, AbandonedWithAGradientDiscardsTheWindow) {
  for (const int32_t accumulation : {1, 3}) {
    const auto solo = make(accumulation), reference = make(accumulation);
    solo->engine.pass({{0, dyadic(600, 3)}, {1, dyadic(600, 4)}});
    reference->engine.pass({{0, dyadic(600, 3)}, {1, dyadic(600, 4)}});
    for (int32_t i = 1; i < accumulation; ++i) {
      for (const auto* s : {&solo, &reference}) {
        (*s)->engine.step();
        (*s)->engine.pass({{0, dyadic(600, 5)}});
      }
    }
    const auto before = solo->engine.everything();
    auto pass = solo->engine.begin();
    Engine::add(pass, 1, {600}, Values(600, 100));
    pass.reset();
    const auto report = solo->engine.step();
    EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
    EXPECT_EQ(report.reason, OTR_SKIP_ABANDONED);
    EXPECT_EQ(report.skipped_steps, 1);
    EXPECT_EQ(report.applied_steps, 0);
    EXPECT_EQ(report.updates, 0);
    EXPECT_EQ(solo->engine.everything(), before) << "nothing changed";

    // The next window begins afresh: as if the discarded one had never been.
    const auto fresh = make(accumulation);
    for (const auto* s : {&solo, &fresh}) {
      for (int32_t i = 0; i < accumulation; ++i) {
        (*s)->engine.pass({{0, dyadic(600, 8)}, {1, dyadic(600, 9)}});
        EXPECT_EQ((*s)->engine.step().outcome,
                  i + 1 < accumulation ? OTR_STEP_ACCUMULATED : OTR_STEP_APPLIED);
      }
    }
    EXPECT_EQ(solo->engine.everything(), fresh->engine.everything());
  }
}

// By name, for a host whose collector keeps the handle: as if it had been destroyed.
TEST_P(Pass, AbandonedByNameAndNotDestroyed) {
  const auto solo = make();
  const Tensor output({2}, {3, 4});
  otr_pass* opened = nullptr;
  ASSERT_OK(otr_pass_begin(solo->engine.get(), &output, 1, nullptr, &opened));
  const Owned<otr_pass> pass(opened);
  Engine::add(pass, 1, {600}, Values(600, 100));
  EXPECT_OK(otr_pass_abandon(pass.get()));
  EXPECT_OK(otr_pass_abandon(pass.get())) << "nothing is left to give up";
  otr_tensor grad, slot;
  EXPECT_OK(otr_pass_get_output_grad(pass.get(), 0, &grad));
  EXPECT_EQ(values_of(grad), (Values{3, 4}));
  EXPECT_FAILS(OTR_E_STATE, otr_pass_get_slot(pass.get(), 0, &slot), "ended");
  EXPECT_FAILS(OTR_E_STATE, otr_pass_end(pass.get()), "ended");
  EXPECT_EQ(solo->engine.step().reason, OTR_SKIP_ABANDONED);
  solo->engine.pass({{0, Values(600, 1)}});
  EXPECT_EQ(solo->engine.step().outcome, OTR_STEP_APPLIED);
}

TEST_P(Pass, AbandonedWhileASlotIsOut) {
  const auto solo = make();
  auto pass = solo->engine.begin();
  otr_tensor slot;
  ASSERT_OK(otr_pass_get_slot(pass.get(), 0, &slot));
  Engine::add(pass, 1, {600}, Values(600, 1));
  pass.reset();
  EXPECT_EQ(solo->engine.step().reason, OTR_SKIP_ABANDONED);
  solo->engine.pass({{0, Values(600, 1)}});
  const auto report = solo->engine.step();
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(report.grad_norm, std::sqrt(600.0));
}

TEST_P(Pass, EndedWhileASlotIsOut) {
  const auto solo = make();
  const auto pass = solo->engine.begin();
  otr_tensor slot;
  ASSERT_OK(otr_pass_get_slot(pass.get(), 0, &slot));
  for (int64_t i = 0; i < 600; ++i) set_value(slot, i, NAN);
  Engine::add(pass, 1, {600}, Values(600, 1));
  Engine::end(pass);
  const auto report = solo->engine.step();
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED) << "a slot that was not handed back is no gradient";
  EXPECT_EQ(report.grad_norm, std::sqrt(600.0));
  EXPECT_EQ(report.updates, 600);
}

// Several passes before one step belong to one micro-batch.
TEST_P(Pass, SeveralBeforeAStepAdd) {
  const auto solo = make();
  solo->engine.pass({{0, Values(600, 1)}});
  solo->engine.pass({{0, Values(600, 2)}, {1, Values(600, 1)}});
  solo->engine.pass({});
  const auto report = solo->engine.step();
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(report.micro_steps, 1);
  EXPECT_EQ(report.grad_norm, std::sqrt(600.0 * 9 + 600));
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Clipping by value and steps left out for their norm on engines: beside loss scale, accumulation,
// joint steps and gradients that are not finite.
#include <cmath>

#include "support.h"

namespace {

using namespace otr_test;

std::string config(int stage, const std::string& own, const std::string& more = "") {
  return R"({"optimizer": {"type": "SGD", "params": {"lr": 1}}, "zero_optimization": {"stage": )" +
         std::to_string(stage) + R"(}, "outrigger": {)" + own + "}" + more + "}";
}

void add(Solo& solo) {
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
}

// One pass whose gradient of "w" is `value` times the scaled gradient of the loss.
void pass(Solo& solo, double value) {
  const Tensor one({}, {1});
  otr_pass* handle = nullptr;
  EXPECT_OK(otr_pass_begin(solo.engine.get(), &one, 1, nullptr, &handle));
  const Owned<otr_pass> owned(handle);
  otr_tensor seed;
  EXPECT_OK(otr_pass_get_output_grad(handle, 0, &seed));
  Engine::add(owned, 0, {300}, Values(300, value * value_at(seed, 0)));
  Engine::end(owned);
}

otr_step_report step(Solo& solo, double value) {
  pass(solo, value);
  return solo.engine.step();
}

TEST(EngineRules, ClippingByValueSeesTheMeanUnscaledGradient) {
  for (int stage = 0; stage <= 3; ++stage) {
    Solo solo(config(stage, R"("gradient_clipping_value": 0.25)",
                     R"(, "gradient_accumulation_steps": 2,
                        "fp16": {"enabled": true, "initial_scale_power": 10})"));
    add(solo);
    EXPECT_EQ(step(solo, 0.5).outcome, OTR_STEP_ACCUMULATED);
    const auto report = step(solo, 0.25);
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(report.clip_coefficient, 1);
    EXPECT_NEAR(report.grad_norm, 0.375 * std::sqrt(300.0), 1e-6);  // before clipping
    EXPECT_EQ(solo.engine.read(0)[7], 0.75);
    step(solo, -0.125);
    EXPECT_EQ(step(solo, -0.125).outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(solo.engine.read(0)[7], 0.875);
  }
}

constexpr const char* kGuard = R"("skip_outlier_norms": {"window": 6, "deviations": 5})";

TEST(EngineRules, OutlierNormsAreLeftOut) {
  for (int stage = 0; stage <= 3; ++stage) {
    Solo solo(config(stage, kGuard));
    add(solo);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(step(solo, 0.1 + 0.01 * (i % 2)).reason, OTR_SKIP_NONE);
    const Values before = solo.engine.read(0);
    const auto report = step(solo, 5);
    EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
    EXPECT_EQ(report.reason, OTR_SKIP_OUTLIER);
    EXPECT_EQ(solo.engine.read(0), before);
    EXPECT_EQ(step(solo, 0.1).outcome, OTR_STEP_APPLIED);
  }
}

// The guard needs the norm; without the check of bfloat16 training, too, one that is none is said
// to be that.
TEST(EngineRules, WhatIsNotFiniteIsNoOutlier) {
  Solo solo(config(1, kGuard, R"(, "gradient_clipping": 0, "bf16": {"enabled": true})"));
  add(solo);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(step(solo, i == 1 ? HUGE_VAL : 0.1).reason,
              i == 1 ? OTR_SKIP_NONFINITE : OTR_SKIP_NONE);
  }
}

// Norms of joint steps are of all engines together; each engine's history has its own.
TEST(EngineRules, AJointStepNotesEachEnginesOwnNorm) {
  Solo small(config(1, kGuard)), large(config(1, kGuard));
  add(small);
  add(large);
  otr_engine* const engines[] = {small.engine.get(), large.engine.get()};
  for (int i = 0; i < 6; ++i) {
    pass(small, 0.1 + 0.01 * (i % 2));
    pass(large, 10 + 0.1 * (i % 2));
    otr_step_report reports[2] = {OTR_STEP_REPORT_INIT, OTR_STEP_REPORT_INIT};
    EXPECT_OK(otr_step_many(engines, 2, nullptr, reports));
    EXPECT_EQ(reports[0].outcome, OTR_STEP_APPLIED);
  }
  EXPECT_EQ(step(small, 5).reason, OTR_SKIP_OUTLIER);
  EXPECT_EQ(step(large, 10).reason, OTR_SKIP_NONE);
}

}  // namespace

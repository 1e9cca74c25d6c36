// SPDX-License-Identifier: Apache-2.0
// The step and its report.
#include <cmath>

#include "support.h"

namespace {

using namespace otr_test;

class Step : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Step, testing::ValuesIn(kKinds), name_of);

TEST_P(Step, ReportsEveryField) {
  Solo solo(config_of(GetParam(), 1, R"("gradient_clipping": 5)"));
  solo.engine.add("a", {4}, {1, 2, 3, 4});
  solo.engine.commit();
  solo.engine.pass({{0, {3, -3, 3, -3}}});
  auto report = solo.engine.step();
  EXPECT_EQ(report.struct_size, sizeof report);
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(report.reason, OTR_SKIP_NONE);
  EXPECT_EQ(report.nonfinite_rank, -1);
  EXPECT_EQ(report.nonfinite_param, -1);
  EXPECT_EQ(report.nonfinite_count, 0);
  EXPECT_EQ(report.micro_steps, 1);
  EXPECT_EQ(report.applied_steps, 1);
  EXPECT_EQ(report.skipped_steps, 0);
  EXPECT_EQ(report.grad_norm, 6) << "before clipping";
  EXPECT_NEAR(report.clip_coefficient, 5.0 / 6, 1e-6);
  EXPECT_EQ(report.loss_scale, 1);
  EXPECT_EQ(report.lr, 0.125);
  EXPECT_EQ(report.updates, 4);
  EXPECT_EQ(report.vanished, 0);
  solo.engine.pass({{0, {1, 0, 0, 0}}});
  report = solo.engine.step();
  EXPECT_EQ(report.grad_norm, 1);
  EXPECT_EQ(report.clip_coefficient, 1) << "none";
  EXPECT_EQ(report.applied_steps, 2);
}

TEST_P(Step, CountsVanishedUpdates) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("a", {4}, {1024, 1024, 1, 1024});
  solo.engine.commit();
  EXPECT_OK(otr_engine_set_group_value(solo.engine.get(), nullptr, "lr", 1e-6));
  solo.engine.pass({{0, {1, 1, 1, 0}}});
  const auto report = solo.engine.step();
  EXPECT_EQ(report.updates, 3) << "an update of zero is none";
  // 1e-6 is below half a unit of 1024 in float32, above it for 1; below it for both in 16 bits.
  const std::string_view precision = GetParam().precision;
  EXPECT_EQ(report.vanished, precision == "bf16_states" || precision == "fp16_master" ? 3 : 2);
}

TEST_P(Step, AccumulatesAndReportsIt) {
  const auto run = [&](int32_t accumulation, Solo& solo) {
    solo.engine.add("a", {600}, dyadic(600, 1));
    solo.engine.commit();
    for (int window = 0; window < 2; ++window) {
      for (int32_t i = 0; i < 3; ++i) {
        solo.engine.pass({{0, Values(600, 1 << i)}});
        if (accumulation == 1 && i < 2) continue;  // the same passes as one micro-batch
        const auto report = solo.engine.step();
        const bool boundary = i == 2;
        EXPECT_EQ(report.outcome, boundary ? OTR_STEP_APPLIED : OTR_STEP_ACCUMULATED);
        EXPECT_EQ(report.reason, OTR_SKIP_NONE);
        EXPECT_EQ(report.micro_steps, accumulation == 1 ? window + 1 : 3 * window + i + 1);
        EXPECT_EQ(report.applied_steps, boundary ? window + 1 : window);
        EXPECT_EQ(report.nonfinite_param, -1);
        EXPECT_EQ(report.nonfinite_rank, -1);
        EXPECT_EQ(report.updates, boundary ? 600 : 0);
        if (boundary) {
          EXPECT_EQ(report.grad_norm, std::sqrt(600 * 49.0))
              << "gradients carry their scale already";
        }
      }
    }
    return solo.engine.everything();
  };
  Solo one(config_of(GetParam(), 1)), three(config_of(GetParam(), 3));
  EXPECT_EQ(run(1, one), run(3, three));
}

TEST_P(Step, AccumulatingChangesNothingElse) {
  Solo solo(config_of(GetParam(), 3));
  solo.engine.add("a", {600}, dyadic(600, 1));
  solo.engine.commit();
  const auto before = solo.engine.everything();
  solo.engine.pass({{0, Values(600, 1)}});
  solo.engine.step();
  EXPECT_EQ(solo.engine.everything(), before);
  EXPECT_FAILS(OTR_E_STATE, otr_engine_step(solo.engine.get(), nullptr), "pass");
  solo.engine.pass({{0, Values(600, 1)}});
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_ACCUMULATED) << "the refused step counted";
}

TEST_P(Step, SkipsOnNonfiniteGradientsAndChangesNothing) {
  for (const double bad :
       {static_cast<double>(INFINITY), -static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    for (const int32_t accumulation : {1, 3}) {
      Solo solo(config_of(GetParam(), accumulation));
      for (int p = 0; p < 4; ++p)
        solo.engine.add(("p" + std::to_string(p)).c_str(), {300}, dyadic(300, p));
      solo.engine.commit();
      const auto window = [&](bool poisoned) {
        otr_step_report report{};
        for (int32_t i = 0; i < accumulation; ++i) {
          Values second = dyadic(300, 5), third = dyadic(300, 6);
          if (poisoned && i == 0) {
            second[17] = bad;
            third[0] = third[299] = bad;
          }
          solo.engine.pass({{3, dyadic(300, 4)}, {2, third}, {1, second}, {0, dyadic(300, 7)}});
          report = solo.engine.step();
        }
        return report;
      };
      EXPECT_EQ(window(false).outcome, OTR_STEP_APPLIED);
      const auto before = solo.engine.everything();
      auto report = window(true);
      EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
      EXPECT_EQ(report.reason, OTR_SKIP_NONFINITE);
      EXPECT_EQ(report.nonfinite_param, 1) << "the lowest id";
      EXPECT_EQ(report.nonfinite_rank, 0);
      EXPECT_EQ(report.nonfinite_count, 3);
      EXPECT_FALSE(std::isfinite(report.grad_norm));
      EXPECT_EQ(report.clip_coefficient, 1);
      EXPECT_EQ(report.applied_steps, 1);
      EXPECT_EQ(report.skipped_steps, 1);
      EXPECT_EQ(report.updates, 0);
      EXPECT_EQ(solo.engine.everything(), before) << "bitwise as before";
      report = window(false);
      EXPECT_EQ(report.outcome, OTR_STEP_APPLIED) << "the gradients are gone";
      EXPECT_EQ(report.applied_steps, 2);
      EXPECT_EQ(report.nonfinite_count, 0);
    }
  }
}

// Finite contributions whose sum is not.
TEST_P(Step, SkipsWhenOnlyTheSumIsNotFinite) {
  const double most = std::string_view(compute_dtype(GetParam())) == "float32" ? 3e38 : 3.3e38;
  Solo solo(config_of(GetParam()));
  solo.engine.add("a", {2}, {1, 1});
  solo.engine.commit();
  const auto before = solo.engine.everything();
  solo.engine.pass({{0, {most, 1}}});
  solo.engine.pass({{0, {most, 1}}});
  const auto report = solo.engine.step();
  EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
  EXPECT_EQ(report.reason, OTR_SKIP_NONFINITE);
  EXPECT_EQ(report.nonfinite_param, 0);
  EXPECT_EQ(report.nonfinite_count, 1);
  EXPECT_EQ(solo.engine.everything(), before);
}

// A norm beyond float32 is no overflow: squares add in a wider format.
TEST_P(Step, TakesLargeAndSmallNorms) {
  const bool half = std::string_view(compute_dtype(GetParam())) == "float16";
  for (const double size : {half ? 0x1p15 : 0x1p100, half ? 0x1p-24 : 0x1p-100}) {
    Solo solo(config_of(GetParam()));
    solo.engine.add("a", {4}, {1, 1, 1, 1});
    solo.engine.commit();
    solo.engine.pass({{0, Values(4, size)}});
    const auto report = solo.engine.step();
    EXPECT_EQ(report.grad_norm, 2 * size);
  }
}

TEST_P(Step, ClipsToTheNorm) {
  // Adam is blind to a constant factor, so look at the first moment: 0.1 × the clipped gradient.
  Solo solo(config_of(GetParam(), 1, R"("gradient_clipping": 1)"));
  solo.engine.add("a", {4}, {1, 1, 1, 1});
  solo.engine.commit();
  solo.engine.pass({{0, Values(4, 8)}});
  const auto report = solo.engine.step();
  EXPECT_EQ(report.grad_norm, 16);
  EXPECT_NEAR(report.clip_coefficient, 1.0 / 16, 1e-6);
  for (const double m : solo.engine.read(0, OTR_VALUE_EXP_AVG)) {
    EXPECT_NEAR(m, 0.05, 0.05 / 128);
  }
}

TEST_P(Step, HasTheSameBitsOnAnyNumberOfWorkers) {
  std::vector<Values> first;
  for (const int32_t workers : {1, 2, 5}) {
    Solo solo(config_of(GetParam(), 1, R"("gradient_clipping": 1)"), workers);
    solo.engine.add("a", {70000}, dyadic(70000, 1));
    solo.engine.add("b", {300, 301}, dyadic(300 * 301, 2));
    solo.engine.commit();
    for (int i = 0; i < 2; ++i) {
      solo.engine.pass({{1, dyadic(300 * 301, 4 + i)}, {0, dyadic(70000, 3 + i)}});
      solo.engine.step();
    }
    if (first.empty()) first = solo.engine.everything();
    EXPECT_EQ(solo.engine.everything(), first) << workers << " workers";
  }
}

}  // namespace

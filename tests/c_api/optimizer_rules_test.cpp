// SPDX-License-Identifier: Apache-2.0
// Rules other than Adam on shards: what they compute from the configuration, which states they
// keep, clipping by value, and steps left out for their norm. (Formulas: tests/kernels/rules_test.)
#include "flat.h"

namespace {

using namespace otr_test;

Values run(otr_context* context, const std::string& json, int steps, int64_t count = 300,
           const char* dtype = "float32") {
  const auto optimizer = make_optimizer(context, json);
  Flat flat(context, irrational(count, 1, 2), irrational(count, 2), dtype, "float32");
  for (int t = 1; t <= steps; ++t) {
    flat.set_grads(irrational(count, 2 + t));
    EXPECT_EQ(step(optimizer, {flat.shard()}).outcome, OTR_STEP_APPLIED);
  }
  return flat.weights();
}

void expect_near(const Values& got, const Values& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << i;
}

// Weights after `steps` steps of f(weight, gradient, m, v, t).
template <class F>
Values expected(int steps, const F& f) {
  Values w = irrational(300, 1, 2), m(300, 0), v(300, 0);
  for (int t = 1; t <= steps; ++t) {
    const Values g = irrational(300, 2 + t);
    for (size_t i = 0; i < w.size(); ++i) f(w[i], g[i], m[i], v[i], t);
  }
  return w;
}

TEST(OptimizerRules, FollowTheirFormulasWithTheConfiguredHyperparameters) {
  const auto context = make_context();
  expect_near(
      run(context.get(),
          R"({"type": "Adagrad", "params": {"lr": 0.1, "eps": 1e-3, "weight_decay": 0.1}})", 9),
      expected(9,
               [](double& w, double g, double&, double& v, int) {
                 g += 0.1 * w;
                 v += g * g;
                 w -= 0.1 * g / (std::sqrt(v) + 1e-3);
               }),
      1e-5);
  expect_near(
      run(context.get(),
          R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.8, "dampening": 0.5, "weight_decay": 0.1}})",
          9),
      expected(9,
               [](double& w, double g, double& m, double&, int t) {
                 g += 0.1 * w;
                 m = t == 1 ? g : 0.8 * m + 0.5 * g;
                 w -= 0.1 * m;
               }),
      1e-5);
  expect_near(
      run(context.get(),
          R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.8, "nesterov": true}})", 9),
      expected(9,
               [](double& w, double g, double& m, double&, int) {
                 m = 0.8 * m + g;
                 w -= 0.1 * (g + 0.8 * m);
               }),
      1e-5);
  expect_near(
      run(context.get(),
          R"({"type": "Lion", "params": {"lr": 0.01, "betas": [0.8, 0.95], "weight_decay": 0.1}})",
          9),
      expected(9,
               [](double& w, double g, double& m, double&, int) {
                 const double c = 0.8 * m + (1 - 0.8) * g;
                 w -= 0.01 * ((c > 0) - (c < 0) + 0.1 * w);
                 m = 0.95 * m + (1 - 0.95) * g;
               }),
      1e-5);
}

// Each shard is a layer: its step has the length lr times that of its weights, within the bounds.
TEST(OptimizerRules, LambTakesEachShardForALayer) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(
      context.get(),
      R"({"type": "Lamb", "params": {"lr": 0.01, "min_coeff": 0.5, "max_coeff": 4}})");
  const auto length = [](const Values& a, const Values* b = nullptr) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double d = b == nullptr ? a[i] : a[i] - (*b)[i];
      sum += d * d;
    }
    return std::sqrt(sum);
  };
  // After one step m_hat / sqrt(v_hat) is ±1, so its norm is the root of 1000.
  const double direction = std::sqrt(1000.0);
  for (const auto& [size, ratio] : {std::pair{2.0, -1.0}, {100.0, 4.0}, {0.01, 0.5}, {0.0, 1.0}}) {
    const Values before = irrational(1000, 1, size);
    Flat flat(context.get(), before, irrational(1000, 2));
    step(optimizer, {flat.shard()});
    const Values after = flat.weights();
    const double want = ratio < 0 ? length(before) / direction : ratio;
    EXPECT_NEAR(length(after, &before), 0.01 * want * direction, 2e-3 * want * direction * 0.01);
  }
  otr_shard_options options;
  EXPECT_OK(otr_shard_options_init(&options, sizeof options));
  options.first_element = 256;
  Flat part(context.get(), irrational(10, 1), irrational(10, 2), "float32", "float32", &options);
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_FAILS(OTR_E_STATE, otr_optimizer_step(optimizer.get(), part.list(), 1, &report),
               "begins at element 256", "whole parameters", "engine");
}

TEST(OptimizerRules, KeepTheStatesTheyNeedAndNoOthers) {
  const auto context = make_context();
  struct Kept {
    const char* json;
    bool exp_avg, exp_avg_sq;
    int64_t bytes;
  };
  for (const Kept& k : {Kept{R"({"type": "SGD"})", false, false, 0},
                        {R"({"type": "SGD", "params": {"momentum": 0.9}})", true, false, 1200},
                        {R"({"type": "Lion"})", true, false, 1200},
                        {R"({"type": "Adagrad"})", false, true, 1200},
                        {R"({"type": "Lamb"})", true, true, 2400}}) {
    SCOPED_TRACE(k.json);
    Flat flat(context.get(), irrational(300, 1), irrational(300, 2));
    step(make_optimizer(context.get(), k.json), {flat.shard()});
    int64_t bytes = -1;
    EXPECT_OK(otr_shard_state_bytes(flat.shard(), &bytes));
    EXPECT_EQ(bytes, k.bytes);
    const Tensor out = Tensor::filled({300}, 0);
    otr_tensor view;
    for (const auto& [value, kept] :
         {std::pair{OTR_VALUE_EXP_AVG, k.exp_avg}, {OTR_VALUE_EXP_AVG_SQ, k.exp_avg_sq}}) {
      EXPECT_EQ(otr_shard_read(flat.shard(), value, &out), kept ? OTR_OK : OTR_E_NOT_FOUND);
      EXPECT_EQ(otr_shard_write(flat.shard(), value, &out), kept ? OTR_OK : OTR_E_NOT_FOUND);
      EXPECT_EQ(otr_shard_state(flat.shard(), value, &view), kept ? OTR_OK : OTR_E_NOT_FOUND);
    }
    otr_step_report report = OTR_STEP_REPORT_INIT;
    if (k.exp_avg && k.exp_avg_sq) continue;
    EXPECT_FAILS(
        OTR_E_STATE,
        otr_optimizer_step(make_optimizer(context.get(), "{}").get(), flat.list(), 1, &report),
        "with another rule", "AdamW keeps exp_avg and exp_avg_sq");
  }
}

// All weight and state formats: the low-precision run stays by the float32 one.
TEST(OptimizerRules, RunInEveryFormat) {
  const auto context = make_context();
  const auto json = [](const char* type, const char* params, const char* state,
                       const char* format) {
    return std::string(R"({"type": ")") + type + R"(", "params": {"lr": 0.01)" + params +
           R"(}, "states": {")" + state + R"(": {"format": ")" + format + R"("}}})";
  };
  for (const auto& [type, params, state] : {std::tuple{"Lion", "", "exp_avg"},
                                            {"SGD", R"(, "momentum": 0.9)", "exp_avg"},
                                            {"Adagrad", "", "exp_avg_sq"}}) {
    const Values want = run(context.get(), json(type, params, state, "float32"), 20);
    for (const char* format : {"bfloat16", "block8"}) {
      for (const char* weights : {"float32", "bfloat16"}) {
        const Values got = run(context.get(), json(type, params, state, format), 20, 300, weights);
        // How far along the way of float32: 1, whatever rounding does to the sides.
        double along = 0, way = 0;
        const Values start = irrational(300, 1, 2);
        for (size_t i = 0; i < got.size(); ++i) {
          along += (got[i] - start[i]) * (want[i] - start[i]);
          way += (want[i] - start[i]) * (want[i] - start[i]);
        }
        EXPECT_NEAR(along / way, 1, 0.2) << type << " " << format << " " << weights;
      }
    }
  }
}

TEST(OptimizerRules, ClippingByValueComesBeforeTheRule) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(
      context.get(), R"({"type": "SGD", "params": {"lr": 1}, "gradient_clipping_value": 0.25})");
  Flat flat(context.get(), {1, 1, 1, 1}, {3, -0.5, 0.125, -0.25});
  const auto report = step(optimizer, {flat.shard()});
  EXPECT_EQ(flat.weights(), (Values{0.75, 1.25, 0.875, 1.25}));
  EXPECT_EQ(report.clip_coefficient, 1);
  EXPECT_NEAR(report.grad_norm, std::sqrt(9 + 0.25 + 0.015625 + 0.0625), 1e-6);  // not clipped
}

TEST(OptimizerRules, OutlierNormsAreLeftOut) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(
      context.get(), R"({"type": "SGD", "skip_outlier_norms": {"window": 8, "deviations": 5}})");
  Flat flat(context.get(), {1, 1}, {1, 0});
  const auto with_norm = [&](double norm) {
    flat.set_grads({norm, 0});
    return step(optimizer, {flat.shard()});
  };
  EXPECT_EQ(with_norm(50).outcome, OTR_STEP_APPLIED);  // nothing to compare with yet
  for (int i = 0; i < 8; ++i) EXPECT_EQ(with_norm(1 + 0.1 * (i % 2)).outcome, OTR_STEP_APPLIED);
  const Values before = flat.weights();
  const auto report = with_norm(3);
  EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
  EXPECT_EQ(report.reason, OTR_SKIP_OUTLIER);
  EXPECT_EQ(report.skipped_steps, 1);
  EXPECT_EQ(flat.weights(), before);
  EXPECT_EQ(with_norm(std::nan("")).reason, OTR_SKIP_NONFINITE);
  EXPECT_EQ(with_norm(1.1).outcome, OTR_STEP_APPLIED);
  // Norms that stay there are no outliers for long.
  int skipped = 0;
  for (int i = 0; i < 8; ++i) skipped += with_norm(3).outcome == OTR_STEP_SKIPPED ? 1 : 0;
  EXPECT_LE(skipped, 2);
  EXPECT_EQ(with_norm(3).outcome, OTR_STEP_APPLIED);
}

TEST(OptimizerRules, ValuesAreThoseOfTheRule) {
  const auto context = make_context();
  const auto optimizer =
      make_optimizer(context.get(), R"({"type": "SGD", "params": {"lr": 1, "momentum": 0.5}})");
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "momentum", 0.25));
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_optimizer_set_value(optimizer.get(), "eps", 1e-6), "eps", "SGD",
               "momentum");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_optimizer_set_value(optimizer.get(), "momentum", 0),
               "momentum = 0");
  Flat flat(context.get(), {0}, {1});
  step(optimizer, {flat.shard()});
  step(optimizer, {flat.shard()});
  EXPECT_EQ(flat.weights(), Values{-2.25});  // 1, then 1 + 0.25
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// otr_optimizer: the published formulas within bounds, clipping, skipping, hyperparameters.
#include "flat.h"

namespace {

using namespace otr_test;

// Spacing of a format's numbers around x.
double unit(const char* dtype, double x) {
  const int bits = std::string_view(dtype) == "bfloat16" ? 8 : 24;
  return x == 0 ? 0x1p-149 : std::ldexp(1, std::ilogb(x) - bits + 1);
}

struct Rule {
  const char* name;
  bool decoupled;
  double weight_decay;
  bool bias_correction;
};
struct Formats {
  const char* name;
  const char* weight;
  const char* grad;
  const char* moment;
  bool stochastic;
};
using Case = std::tuple<Rule, Formats>;

class Formulas : public testing::TestWithParam<Case> {};

std::string json_of(const Rule& rule, const Formats& f) {
  const std::string rounding =
      std::string_view(f.moment) == "float32"
          ? ""
          : std::string(R"(, "rounding": ")") + (f.stochastic ? "stochastic" : "nearest") + '"';
  const std::string moment = std::string(R"({"format": ")") + f.moment + '"' + rounding + "}";
  std::string master = std::string(R"({"format": ")") + f.weight + '"';
  if (std::string_view(f.weight) == "bfloat16") {
    master += std::string(R"(, "rounding": ")") + (f.stochastic ? "stochastic" : "nearest") + '"';
  }
  return std::string(
             R"({"type": "Adam", "params": {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-6, "adam_w_mode": )") +
         (rule.decoupled ? "true" : "false") + R"(, "weight_decay": )" +
         std::to_string(rule.weight_decay) + R"(, "bias_correction": )" +
         (rule.bias_correction ? "true" : "false") + R"(}, "states": {"master": )" + master +
         R"(}, "exp_avg": )" + moment + R"(, "exp_avg_sq": )" + moment + "}}";
}

// Each step is compared with the formula applied to what was stored before it: so the bound is that
// of one step, a few float32 roundings and half a unit of the stored format (a whole one if
// stochastic).
TEST_P(Formulas, HoldInEveryStep) {
  const auto& [rule, formats] = GetParam();
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), json_of(rule, formats));
  AdamReference reference{
      0.01, 0.8, 0.95, 1e-6, rule.weight_decay, rule.decoupled, rule.bias_correction};
  constexpr int64_t kCount = 1000;
  Flat flat(context.get(), irrational(kCount, 1, 2), irrational(kCount, 2), formats.weight,
            formats.grad);
  const double share = formats.stochastic ? 1.0 : 0.5;
  Values m(kCount, 0), v(kCount, 0);
  for (int t = 1; t <= 6; ++t) {
    const Values before = flat.weights(), g = flat.grads();
    const auto report = step(optimizer, {flat.shard()});
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    const Values w = flat.weights(), new_m = flat.state(OTR_VALUE_EXP_AVG),
                 new_v = flat.state(OTR_VALUE_EXP_AVG_SQ);
    for (size_t i = 0; i < w.size(); ++i) {
      const auto expected = reference.step({before[i], m[i], v[i]}, g[i], t);
      const double step_size = std::fabs(expected.w - before[i]);
      ASSERT_NEAR(w[i], expected.w,
                  share * unit(formats.weight, expected.w) * 1.001 + 1e-6 * step_size +
                      2e-7 * std::fabs(before[i]))
          << i;
      ASSERT_NEAR(new_m[i], expected.m,
                  share * unit(formats.moment, expected.m) * 1.001 +
                      3e-7 * (std::fabs(m[i]) + std::fabs(g[i]) + 0.1))
          << i;
      ASSERT_NEAR(new_v[i], expected.v,
                  share * unit(formats.moment, expected.v) * 1.001 + 5e-7 * (expected.v + 1e-3))
          << i;
    }
    m = new_m;
    v = new_v;
    flat.set_grads(irrational(kCount, 2 + t));
  }
}
INSTANTIATE_TEST_SUITE_P(
    Of, Formulas,
    testing::Combine(
        testing::Values(Rule{"AdamW", true, 0.1, true}, Rule{"AdamW_without_decay", true, 0, true},
                        Rule{"Adam", false, 0.1, true},
                        Rule{"AdamW_uncorrected", true, 0.1, false}),
        testing::Values(Formats{"float32", "float32", "float32", "float32", false},
                        Formats{"float32_bf16_grads", "float32", "bfloat16", "float32", false},
                        Formats{"bf16_nearest", "bfloat16", "bfloat16", "bfloat16", false},
                        Formats{"bf16_stochastic", "bfloat16", "float32", "bfloat16", true},
                        Formats{"bf16_weights", "bfloat16", "bfloat16", "float32", true})),
    [](const testing::TestParamInfo<Case>& info) {
      return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
    });

// Over many steps, too, float32 stays by float64.
TEST(Optimizer, FollowsTheFormulaOverManySteps) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(
      context.get(), R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})");
  const AdamReference reference{0.01, 0.9, 0.999, 1e-8, 0.1, true, true};
  constexpr size_t kCount = 500;
  Flat flat(context.get(), irrational(kCount, 1), irrational(kCount, 0));
  std::vector<AdamReference::State> states;
  for (const double w : flat.weights()) states.push_back({w, 0, 0});
  for (int t = 1; t <= 200; ++t) {
    flat.set_grads(irrational(kCount, t * 1.3));
    const Values g = flat.grads();
    step(optimizer, {flat.shard()});
    for (size_t i = 0; i < kCount; ++i) states[i] = reference.step(states[i], g[i], t);
  }
  const Values w = flat.weights();
  // 200 steps, each a few units of a number below 1: 200 × 4 × 2^-25.
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(w[i], states[i].w, 200 * 4 * 0x1p-25) << i;
  }
}

TEST(Optimizer, StochasticRoundingIsRightOnAverage) {
  const auto context = make_context();
  // The update is lr = 2^-12, a sixteenth of bfloat16's unit at 1 (2^-8 below, where the weight
  // goes).
  const auto optimizer = make_optimizer(
      context.get(),
      R"({"params": {"lr": 0.000244140625, "eps": 1e-12}, "states": {"master": {"format": "bfloat16"}}})");
  constexpr int64_t kCount = 100000;
  Flat flat(context.get(), Values(kCount, 1), Values(kCount, 1), "bfloat16");
  const auto report = step(optimizer, {flat.shard()});
  double mean = 0;
  for (const double w : flat.weights()) {
    ASSERT_TRUE(w == 1 || w == 1 - 0x1p-8) << w;
    mean += w / kCount;
  }
  // A sixteenth of the weights moves; the mean's deviation is 2^-8 × sqrt(1/16 × 15/16 / 1e5) =
  // 3e-6.
  EXPECT_NEAR(mean, 1 - 0x1p-12, 5 * 3e-6);
  EXPECT_EQ(report.updates, kCount);
  EXPECT_NEAR(static_cast<double>(report.vanished), kCount * 15.0 / 16, 5 * 77);
}

TEST(Optimizer, NearestRoundingLosesWhatIsSmall) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(
      context.get(),
      R"({"params": {"lr": 0.000244140625}, "states": {"master": {"format": "bfloat16", "rounding": "nearest"}}})");
  Flat flat(context.get(), Values(100, 1), Values(100, 1), "bfloat16");
  const auto report = step(optimizer, {flat.shard()});
  EXPECT_EQ(flat.weights(), Values(100, 1));
  EXPECT_EQ(report.updates, 100);
  EXPECT_EQ(report.vanished, 100);
}

TEST(Optimizer, ReportsEveryField) {
  const auto context = make_context();
  const auto optimizer =
      make_optimizer(context.get(), R"({"params": {"lr": 0.5}, "gradient_clipping": 5})");
  Flat a(context.get(), {1, 2}, {3, 3}), b(context.get(), {3, 4, 5}, {3, -3, 0});
  auto report = step(optimizer, {a.shard(), b.shard()});
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(report.reason, OTR_SKIP_NONE);
  EXPECT_EQ(report.nonfinite_param, -1);
  EXPECT_EQ(report.nonfinite_rank, -1);
  EXPECT_EQ(report.nonfinite_count, 0);
  EXPECT_EQ(report.applied_steps, 1);
  EXPECT_EQ(report.skipped_steps, 0);
  EXPECT_EQ(report.grad_norm, 6) << "over all shards, before clipping";
  EXPECT_NEAR(report.clip_coefficient, 5.0 / 6, 1e-6);
  EXPECT_EQ(report.lr, 0.5);
  EXPECT_EQ(report.loss_scale, 1);
  EXPECT_EQ(report.updates, 4);
  const double m = 0.1 * 3 * 5 / 6;
  EXPECT_NEAR(a.state(OTR_VALUE_EXP_AVG)[0], m, 1e-5) << "clipped before the update";
  EXPECT_NEAR(b.state(OTR_VALUE_EXP_AVG)[1], -m, 1e-5);
}

TEST(Optimizer, WithoutClippingByDefault) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), "");
  Flat flat(context.get(), {1}, {1000});
  EXPECT_EQ(step(optimizer, {flat.shard()}).clip_coefficient, 1);
}

TEST(Optimizer, SkipsAndChangesNothing) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), R"({"gradient_clipping": 1})");
  const auto reference = make_optimizer(context.get(), R"({"gradient_clipping": 1})");
  for (const double bad :
       {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
    Flat a(context.get(), dyadic(700, 1), dyadic(700, 2)),
        b(context.get(), dyadic(300, 3), dyadic(300, 4), "bfloat16");
    Flat a2(context.get(), dyadic(700, 1), dyadic(700, 2)),
        b2(context.get(), dyadic(300, 3), dyadic(300, 4), "bfloat16");
    step(optimizer, {a.shard(), b.shard()});
    step(reference, {a2.shard(), b2.shard()});
    const auto all = [](const Flat& f) {
      return std::vector<Values>{f.weights(), f.state(OTR_VALUE_EXP_AVG),
                                 f.state(OTR_VALUE_EXP_AVG_SQ)};
    };
    const auto before_a = all(a), before_b = all(b);
    Values poisoned = dyadic(300, 5);
    poisoned[299] = poisoned[7] = bad;
    b.set_grads(poisoned);
    const auto report = step(optimizer, {a.shard(), b.shard()});
    EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
    EXPECT_EQ(report.reason, OTR_SKIP_NONFINITE);
    EXPECT_EQ(report.nonfinite_param, 1) << "the shard's index";
    EXPECT_EQ(report.nonfinite_count, 2);
    EXPECT_FALSE(std::isfinite(report.grad_norm));
    EXPECT_EQ(all(a), before_a);
    EXPECT_EQ(all(b), before_b);
    // And the next is as if the skipped one had never been.
    for (Flat* f : {&a, &a2}) f->set_grads(dyadic(700, 6));
    for (Flat* f : {&b, &b2}) f->set_grads(dyadic(300, 7));
    EXPECT_EQ(step(optimizer, {a.shard(), b.shard()}).outcome, OTR_STEP_APPLIED);
    step(reference, {a2.shard(), b2.shard()});
    EXPECT_EQ(all(a), all(a2));
    EXPECT_EQ(all(b), all(b2));
  }
}

TEST(Optimizer, ValuesHoldFromTheNextStep) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), "");
  Flat flat(context.get(), {1}, {1});
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "lr", 0.25));
  EXPECT_EQ(step(optimizer, {flat.shard()}).lr, 0.25);
  EXPECT_NEAR(flat.weights()[0], 0.75, 1e-6);
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "lr", 0));
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "weight_decay", 0.5));
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "beta1", 0));
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "beta2", 0.5));
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "eps", 1));
  const double before = flat.weights()[0];
  step(optimizer, {flat.shard()});
  EXPECT_EQ(flat.weights()[0], before) << "lr 0";
  EXPECT_EQ(flat.state(OTR_VALUE_EXP_AVG)[0], 1) << "beta1 0";
}

TEST(Optimizer, RefusesValuesOutOfRange) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), "");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_optimizer_set_value(optimizer.get(), "learning_rate", 1),
               "learning_rate", "lr");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_optimizer_set_value(optimizer.get(), "beta", 1), "\"beta1\"");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_optimizer_set_value(optimizer.get(), "lr", -1), "lr", "-1");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_optimizer_set_value(optimizer.get(), "beta2", 1), "beta2", "1");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_optimizer_set_value(optimizer.get(), "eps", NAN), "eps", "nan");
}

TEST(Optimizer, RefusesBadConfigurations) {
  const auto context = make_context();
  otr_optimizer* optimizer = nullptr;
  const auto expect = [&](int32_t status, const char* json,
                          std::initializer_list<std::string_view> parts) {
    EXPECT_TRUE(failed(status, otr_optimizer_create(context.get(), json, &optimizer), parts))
        << json;
    EXPECT_EQ(optimizer, nullptr);
  };
  expect(OTR_E_CONFIG, "{", {"line 1"});
  expect(OTR_E_CONFIG, R"({"typ": "AdamW"})", {"typ", "type"});
  expect(OTR_E_CONFIG, R"({"params": {"lr": "0.1"}})", {"lr"});
  expect(OTR_E_CONFIG, R"({"params": {"lr": -0.1}})", {"lr", "-0.1"});
  expect(OTR_E_CONFIG, R"({"states": {"master": {"format": "int8"}}})", {"int8"});
  expect(OTR_E_UNSUPPORTED, R"({"type": "MuSGD"})", {"Lion"});
  expect(OTR_E_CONFIG, R"({"states": {"master": {"format": "block8"}}})", {"block8", "split"});
}

TEST(Optimizer, TakesEachShardOnce) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), "");
  Flat flat(context.get(), {1}, {1});
  otr_shard* twice[2] = {flat.shard(), flat.shard()};
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_optimizer_step(optimizer.get(), twice, 2, nullptr), "0", "1",
               "same");
  EXPECT_EQ(flat.weights()[0], 1);
}

TEST(Optimizer, OutlivesItsContextAndTheShardsOutliveIt) {
  auto context = make_context();
  auto optimizer = make_optimizer(context.get(), "");
  Flat flat(context.get(), {1}, {1});
  context.reset();
  step(optimizer, {flat.shard()});
  optimizer.reset();
  EXPECT_EQ(flat.state(OTR_VALUE_EXP_AVG).size(), 1U);
  flat.destroy();
}

}  // namespace

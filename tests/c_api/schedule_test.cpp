// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules on engines and shards: the rates of 50 updates against the published
// formulas, which rate the weights feel, what advances a schedule, and what a caller can set.
#include <algorithm>
#include <limits>
#include <numbers>

#include "flat.h"

namespace {

using namespace otr_test;

constexpr double kPi = std::numbers::pi;
constexpr int kSteps = 50, kSkipped = 17;
constexpr double kBase = 0.25;

// A schedule, and its rate in update n from 0. Of DeepSpeed's types the n-th update has the value
// after n calls of its step(), whose counter is then n - 1.
struct Case {
  const char *type, *params;
  double (*lr)(int n, double base);
};
double wsd(int n, double base, double (*fall)(double)) {
  const double share = n < 10   ? 0.1 + 0.9 * n / 10
                       : n < 28 ? 1
                       : n < 40 ? 0.25 + 0.75 * fall((n - 28) / 12.0)
                                : 0.25;
  return base * share;
}
const Case kCases[] = {
    {"WarmupLR", R"("warmup_num_steps": 10)",
     [](int n, double base) {
       return n == 0 ? 0 : n <= 10 ? base * std::log(n) / std::log(10) : base;
     }},
    {"WarmupLR",
     R"("warmup_min_lr": 0.5, "warmup_max_lr": 1, "warmup_num_steps": 8, "warmup_type": "linear")",
     [](int n, double) { return n == 0   ? 0.5
                                : n <= 8 ? 0.5 + 0.5 * (n - 1) / 8
                                         : 1; }},
    {"WarmupLR", R"("warmup_num_steps": 0, "warmup_max_lr": 1)",  // at least 2
     [](int n, double) { return n < 2 ? 0.0 : 1.0; }},
    {"WarmupDecayLR", R"("total_num_steps": 40, "warmup_num_steps": 10, "warmup_min_lr": 1e-4)",
     [](int n, double) {
       const double share = n == 0    ? 0
                            : n <= 10 ? std::log(n) / std::log(10)
                                      : std::max(0.0, (40 - (n - 1)) / 30.0);
       return 1e-4 + (1e-3 - 1e-4) * share;
     }},
    {"WarmupCosineLR",
     R"("total_num_steps": 30, "warmup_num_steps": 5, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.05, "warmup_type": "linear")",
     [](int n, double base) {
       if (n == 0) return 0.0;
       if (n <= 5) return base * (0.1 + 0.9 * (n - 1) / 5);
       return base * (0.05 + 0.95 * (1 + std::cos(kPi * std::min(1.0, (n - 5) / 25.0))) / 2);
     }},
    {"LRRangeTest",
     R"("lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 5, "lr_range_test_step_rate": 2)",
     [](int n, double) { return 0.01 * (1 + 2 * n / 5.0); }},
    {"LRRangeTest", R"("lr_range_test_step_size": 5, "lr_range_test_staircase": true)",
     [](int n, double) { return 0.001 * (1 + n / 5); }},
    {"OneCycle",
     R"("cycle_min_lr": 0.125, "cycle_max_lr": 1, "cycle_first_step_size": 8, "cycle_second_step_size": 16, "decay_step_size": 4, "decay_lr_rate": 0.5)",
     [](int n, double) {
       const double share = n <= 8 ? n / 8.0 : (24 - n) / 16.0;
       return n <= 24 ? 0.125 + 0.875 * share : 0.125 / (1 + 0.5 * (n - 24) / 4);
     }},
    {"OneCycle",
     R"("cycle_min_lr": 0, "cycle_max_lr": 1, "cycle_first_step_size": 16, "cycle_first_stair_count": 4)",
     [](int n, double) { return n > 32 ? 0 : std::floor((n <= 16 ? n : 32 - n) / 4.0) / 4; }},
    {"Cosine",
     R"("total_num_steps": 40, "warmup_num_steps": 10, "warmup_min_ratio": 0.1, "min_ratio": 0.25)",
     [](int n, double base) {
       if (n < 10) return base * (0.1 + 0.9 * n / 10);
       return base * (0.25 + 0.75 * (1 + std::cos(kPi * std::min(30, n - 10) / 30)) / 2);
     }},
    {"Cosine", R"("total_num_steps": 20)",
     [](int n, double base) { return base * (1 + std::cos(kPi * std::min(20, n) / 20)) / 2; }},
    {"WSD",
     R"("total_num_steps": 40, "warmup_num_steps": 10, "decay_num_steps": 12, "warmup_min_ratio": 0.1, "min_ratio": 0.25)",
     [](int n, double base) { return wsd(n, base, [](double p) { return 1 - p; }); }},
    {"WSD",
     R"("total_num_steps": 40, "warmup_num_steps": 10, "decay_num_steps": 12, "warmup_min_ratio": 0.1, "min_ratio": 0.25, "decay_type": "cosine")",
     [](int n, double base) {
       return wsd(n, base, [](double p) { return (1 + std::cos(kPi * p)) / 2; });
     }},
    {"WSD",
     R"("total_num_steps": 40, "warmup_num_steps": 10, "decay_num_steps": 12, "warmup_min_ratio": 0.1, "min_ratio": 0.25, "decay_type": "sqrt")",
     [](int n, double base) { return wsd(n, base, [](double p) { return 1 - std::sqrt(p); }); }},
    {"WSD", R"("total_num_steps": 10, "decay_num_steps": 0, "min_ratio": 0.5)",
     [](int n, double base) { return n < 10 ? base : base / 2; }},
};

std::string scheduler(const char* type, const char* params) {
  return std::string(R"("scheduler": {"type": ")") + type + R"(", "params": {)" + params + "}}";
}
std::string engine_json(const char* optimizer, const std::string& rest) {
  return std::string(R"({"gradient_clipping": 0, "optimizer": )") + optimizer + ", " + rest + "}";
}
constexpr const char* kSgd = R"({"type": "SGD", "params": {"lr": 0.25}})";
const char* const kCosine = R"("total_num_steps": 40, "min_ratio": 0.5)";
const char* const kCycle =
    R"("cycle_min_lr": 0.125, "cycle_max_lr": 1, "cycle_first_step_size": 8)";
double cosine(int n, double base) {
  return base * (0.5 + 0.5 * (1 + std::cos(kPi * std::min(40, n) / 40)) / 2);
}
double value_of(const Engine& engine, const char* name, const char* group = nullptr) {
  double value = -1;
  EXPECT_OK(otr_engine_get_group_value(engine.get(), group, name, &value));
  return value;
}

// SGD moves a weight of gradient 1 by the rate: the weights tell which one was used.
TEST(Schedules, GiveAnEngineThePublishedRates) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.type) + " " + c.params);
    Solo solo(engine_json(kSgd, scheduler(c.type, c.params)));
    const int64_t id = solo.engine.add("w", {2}, {0, 0});
    solo.engine.commit();
    double weight = 0;
    for (int step = 0, applied = 0; step < kSteps; ++step) {
      const bool skip = step == kSkipped;
      solo.engine.pass({{id, Values(2, skip ? std::nan("") : 1)}});
      const otr_step_report report = solo.engine.step();
      ASSERT_EQ(report.outcome, skip ? OTR_STEP_SKIPPED : OTR_STEP_APPLIED);
      const double lr = c.lr(applied, kBase);
      ASSERT_NEAR(report.lr, lr, 1e-15) << step;
      if (!skip) weight -= lr, ++applied;
      ASSERT_NEAR(value_of(solo.engine, "scheduled_lr"), c.lr(applied, kBase), 1e-15) << step;
      ASSERT_NEAR(solo.engine.read(id)[0], weight, 1e-5) << step;
    }
  }
}

TEST(Schedules, GiveShardsThePublishedRates) {
  const auto context = make_context();
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.type) + " " + c.params);
    const auto optimizer =
        make_optimizer(context.get(), R"({"type": "SGD", "params": {"lr": 0.25}, )" +
                                          scheduler(c.type, c.params) + "}");
    Flat flat(context.get(), {0, 0}, {1, 1});
    double weight = 0;
    for (int i = 0, applied = 0; i < kSteps; ++i) {
      const bool skip = i == kSkipped;
      flat.set_grads(Values(2, skip ? std::nan("") : 1));
      const otr_step_report report = step(optimizer, {flat.shard()});
      const double lr = c.lr(applied, kBase);
      ASSERT_NEAR(report.lr, lr, 1e-15) << i;
      if (!skip) weight -= lr, ++applied;
      ASSERT_NEAR(flat.weights()[0], weight, 1e-5) << i;
    }
  }
}

TEST(Schedules, OneCycleMovesTheBetasTheOtherWay) {
  Solo solo(
      engine_json("{}", scheduler("OneCycle", (std::string(kCycle) + R"(, "decay_step_size": 1,
        "decay_mom_rate": 0.05, "cycle_min_mom": 0.5, "cycle_max_mom": 0.75)")
                                                  .c_str())));
  const int64_t id = solo.engine.add("w", {1}, {0});
  solo.engine.commit();
  for (int n = 0; n < kSteps; ++n) {
    // The first one is DeepSpeed's: its constructor sets the lower end.
    const double beta1 = n == 0    ? 0.5
                         : n <= 8  ? 0.75 - 0.25 * n / 8
                         : n <= 16 ? 0.75 - 0.25 * (16 - n) / 8
                                   : std::min(0.75 * (1 + 0.05 * (n - 16)), 0.999);
    EXPECT_NEAR(value_of(solo.engine, "beta1"), beta1, 1e-15) << n;
    EXPECT_EQ(value_of(solo.engine, "beta2"), 0.99);
    solo.engine.pass({{id, {1}}});
    const otr_step_report report = solo.engine.step();
    ASSERT_TRUE(std::isfinite(solo.engine.read(id)[0]));
    EXPECT_EQ(report.lr, n > 16 ? 0.125 : 0.125 + 0.875 * (n <= 8 ? n : 16 - n) / 8);
  }
}

TEST(Schedules, ScaleTheRateOfEachGroup) {
  Solo solo(engine_json(kSgd, scheduler("Cosine", kCosine)));
  otr_param_options options = param_options();
  options.group = "other";
  const int64_t ids[] = {solo.engine.add("a", {1}, {0}), solo.engine.add("b", {1}, {0}, &options)};
  solo.engine.commit();
  EXPECT_OK(otr_engine_set_group_value(solo.engine.get(), "other", "lr", 2));
  double a = 0, b = 0;
  for (int n = 0; n < 20; ++n) {
    if (n == 10) {
      EXPECT_OK(otr_engine_set_group_value(solo.engine.get(), "default", "lr", 1));
    }
    const double base = n < 10 ? kBase : 1;
    EXPECT_EQ(value_of(solo.engine, "lr"), base);
    EXPECT_EQ(value_of(solo.engine, "lr", "other"), 2);
    EXPECT_NEAR(value_of(solo.engine, "scheduled_lr", "other"), cosine(n, 2), 1e-15);
    solo.engine.pass({{ids[0], {1}}, {ids[1], {1}}});
    EXPECT_NEAR(solo.engine.step().lr, cosine(n, base), 1e-15);
    a -= cosine(n, base);
    b -= cosine(n, 2);
    EXPECT_NEAR(solo.engine.read(ids[0])[0], a, 1e-5);
    EXPECT_NEAR(solo.engine.read(ids[1])[0], b, 1e-5);
  }
}

TEST(Schedules, AlonePutTheirOwnRates) {
  Solo solo(engine_json(kSgd, scheduler("OneCycle", kCycle)));
  otr_engine* engine = solo.engine.get();
  const int64_t id = solo.engine.add("w", {1}, {0});
  EXPECT_FAILS(OTR_E_STATE, otr_engine_set_group_value(engine, nullptr, "lr", 0.5),
               "lr cannot be set", "scheduler.type \"OneCycle\" sets it",
               "leave the scheduler out");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_set_group_value(engine, nullptr, "beta1", 0.5), "SGD");
  EXPECT_OK(otr_engine_set_group_value(engine, nullptr, "weight_decay", 0));
  solo.engine.commit();
  EXPECT_EQ(value_of(solo.engine, "lr"), 0.125);
  solo.engine.pass({{id, {1}}});
  EXPECT_OK(otr_engine_step_begin(engine));
  value_of(solo.engine, "lr");  // answered while the step is pending: before or after it
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_OK(otr_engine_report(engine, -1, &report));
  EXPECT_EQ(report.lr, 0.125);
  EXPECT_EQ(value_of(solo.engine, "lr"), 0.125 + 0.875 / 8);

  const auto optimizer = make_optimizer(
      solo.context.get(), R"({"scheduler": {"type": "LRRangeTest"}, "type": "Lion"})");
  EXPECT_FAILS(OTR_E_STATE, otr_optimizer_set_value(optimizer.get(), "lr", 0.5), "LRRangeTest");
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "beta1", 0.5));
}

TEST(Schedules, AdvanceWithUpdatesOnly) {
  Solo solo(
      engine_json(kSgd, R"("gradient_accumulation_steps": 3, )" + scheduler("Cosine", kCosine)));
  const int64_t id = solo.engine.add("w", {1}, {0});
  solo.engine.commit();
  for (int step = 0; step < 30; ++step) {
    solo.engine.pass({{id, {1}}});
    EXPECT_NEAR(solo.engine.step().lr, cosine(step / 3, kBase), 1e-15);
  }
}

TEST(Schedules, TellTheHostTheRateOfItsUpdate) {
  Solo solo(
      engine_json(R"({"type": "Host", "params": {"lr": 0.25}})", scheduler("Cosine", kCosine)));
  const int64_t id = solo.engine.add("w", {1}, {0});
  solo.engine.commit();
  for (int n = 0; n < 5; ++n) {
    solo.engine.pass({{id, {1}}});
    otr_step_report report = OTR_STEP_REPORT_INIT;
    EXPECT_OK(otr_engine_reduce(solo.engine.get(), &report));
    EXPECT_NEAR(report.lr, cosine(n, kBase), 1e-15);
    EXPECT_EQ(solo.engine.step().lr, report.lr);
  }
}

// On every stage, in every layout: the ranks have the rates and bits of one.
TEST(Schedules, AreAlikeOnAllRanks) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    for (const char* rule : {"AdamW", "Lamb"}) {
      std::string json = config_of(kind, 1, scheduler("Cosine", kCosine));
      json.replace(json.find("AdamW"), 5, rule);
      run_ranks(2, [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, json);
        const int64_t id = engine.add("w", {600}, irrational(600, 1));
        engine.commit();
        EXPECT_OK(otr_engine_set_group_value(engine.get(), nullptr, "lr", kBase));
        for (int n = 0; n < 6; ++n) {
          engine.pass({{id, dyadic(600, n + rank)}});
          EXPECT_NEAR(engine.step().lr, cosine(n, kBase), 1e-15);
        }
        EXPECT_OK(otr_engine_set_group_value(engine.get(), nullptr, "lr", 1 + rank));
        engine.pass({{id, dyadic(600, 1)}});
        otr_step_report report = OTR_STEP_REPORT_INIT;
        EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_step(engine.get(), &report), "lr");
      });
    }
  }
}

// A shard's own count is its place in the schedule, so a run that is resumed goes on with its bits.
TEST(Schedules, ResumeWithTheShardsCount) {
  const auto context = make_context();
  for (const char* rule : {"AdamW", "Lamb"}) {
    const std::string json =
        std::string(R"({"type": ")") + rule + R"(", "params": {"lr": 0.25}, )" +
        scheduler("WSD", R"("total_num_steps": 20, "warmup_num_steps": 4, "decay_num_steps": 8)") +
        "}";
    Flat whole(context.get(), irrational(300, 1), irrational(300, 2));
    Flat first(context.get(), irrational(300, 1), irrational(300, 2));
    Flat late(context.get(), irrational(300, 1), irrational(300, 2));
    const auto optimizer = make_optimizer(context.get(), json);
    for (int i = 0; i < 12; ++i) step(optimizer, {whole.shard()});
    const auto before = make_optimizer(context.get(), json);
    for (int i = 0; i < 7; ++i) step(before, {first.shard()});

    Flat resumed(context.get(), first.weights(), irrational(300, 2));
    const auto after = make_optimizer(context.get(), json);
    EXPECT_OK(otr_optimizer_prepare(after.get(), resumed.list(), 1));
    for (const int32_t value : {OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
      const Tensor state({300}, first.state(value));
      EXPECT_OK(otr_shard_write(resumed.shard(), value, &state));
    }
    EXPECT_OK(otr_shard_set_step(resumed.shard(), 7));
    for (int n = 7; n < 12; ++n) {
      EXPECT_EQ(step(after, {resumed.shard()}).lr, kBase);  // stable from 4 on
    }
    EXPECT_EQ(resumed.weights(), whole.weights());
    // Beside it another shard begins its own warm-up, at rate 0.
    const Values untouched = late.weights();
    EXPECT_EQ(step(after, {resumed.shard(), late.shard()}).lr, kBase);
    EXPECT_EQ(late.weights(), untouched);
    EXPECT_EQ(step(after, {late.shard(), resumed.shard()}).lr, kBase / 4);
  }
}

}  // namespace

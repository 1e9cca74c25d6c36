// SPDX-License-Identifier: Apache-2.0
// The configuration of learning-rate schedules: what each type takes and needs, and what cannot
// hold. (Their numbers: tests/c_api/schedule_test.)
#include "core/base/text.h"
#include "tests/config/support.h"

namespace outrigger::config {
namespace {

std::string scheduler(std::string_view type, std::string_view params,
                      std::string_view optimizer = "") {
  return format_text(R"({{{}"scheduler": {{"type": "{}", "params": {{{}}}}}}})", optimizer, type,
                     params);
}

Fault fault(std::string_view type, std::string_view params, std::string_view optimizer = "") {
  const std::string text = scheduler(type, params, optimizer);
  const Fault engine = engine_fault(text);
  if (optimizer.empty()) {
    EXPECT_EQ(optimizer_fault(text).text, engine.text) << "the same of shards";
  }
  return engine;
}

ScheduleConfig read(std::string_view type, std::string_view params) {
  return parse_engine(scheduler(type, params), 1).optimizer.schedule;
}

TEST(Schedules, ReadTheirParametersAndDefaults) {
  EXPECT_EQ(parse_engine("", 1).optimizer.schedule.type, Schedule::none);
  ScheduleConfig s = read("warmuplr", "");
  EXPECT_EQ(s.type, Schedule::warmup);
  EXPECT_EQ(s.name, "WarmupLR");
  EXPECT_EQ(s.warmup, 1000);
  EXPECT_EQ(s.warmup_curve, Curve::log);
  EXPECT_FALSE(s.warmup_max_lr);
  EXPECT_FALSE(s.is_absolute());
  EXPECT_TRUE(read("WarmupLR", R"("warmup_max_lr": 0.1)").is_absolute());
  s = read("WarmupDecayLR", R"("total_num_steps": 5e3, "warmup_type": "Linear")");
  EXPECT_EQ(s.total, 5000);
  EXPECT_EQ(s.warmup_max_lr, 0.001);
  EXPECT_EQ(s.warmup_curve, Curve::linear);
  EXPECT_FALSE(
      read("WarmupDecayLR", R"("total_num_steps": 5000, "warmup_max_lr": null)").is_absolute());
  s = read("WarmupCosineLR", R"("total_num_steps": 2000, "warmup_min_ratio": 0.25)");
  EXPECT_EQ(s.min_ratio, 1e-4);
  EXPECT_EQ(s.warmup_min_ratio, 0.25);
  s = read("OneCycle", R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2, "cycle_first_stair_count": 3)");
  EXPECT_EQ(s.first, 2000);
  EXPECT_EQ(s.second, 2000);
  EXPECT_EQ(s.second_stairs, 3);
  EXPECT_TRUE(s.cycles_betas);
  EXPECT_TRUE(s.is_absolute());
  s = read("LRRangeTest", R"("lr_range_test_staircase": true)");
  EXPECT_EQ(s.range_min_lr, 0.001);
  EXPECT_EQ(s.range_step_size, 2000);
  EXPECT_TRUE(s.range_staircase);
  s = read("Cosine", R"("total_num_steps": 10)");
  EXPECT_EQ(s.warmup, 0);
  EXPECT_EQ(s.min_ratio, 0);
  s = read("WSD", R"("total_num_steps": 10, "decay_num_steps": 10, "decay_type": "sqrt")");
  EXPECT_EQ(s.decay, 10);
  EXPECT_EQ(s.decay_curve, Curve::sqrt);
  const EngineConfig lion =
      parse_engine(scheduler("OneCycle", R"("cycle_min_lr": 0, "cycle_max_lr": 1)",
                             R"("optimizer": {"type": "SGD"}, )"),
                   1);
  EXPECT_FALSE(lion.optimizer.schedule.cycles_betas);  // there are none
}

TEST(Schedules, ParametersOfOtherTypesAreRefused) {
  expect_fault(fault("WSD", R"("cos_min_ratio": 0.1)"), OTR_E_CONFIG,
               "line 1, column 59: scheduler.params.cos_min_ratio = 0.1 is no parameter of "
               "scheduler.type = \"WSD\" (line 1, column 24), which has total_num_steps, "
               "warmup_num_steps, warmup_min_ratio, decay_num_steps, decay_type, min_ratio; leave "
               "it out");
  for (const auto& [type, params] :
       {std::pair{"WarmupLR", R"("total_num_steps": 10)"},
        {"WarmupDecayLR", R"("total_num_steps": 2000, "min_ratio": 0.5)"},
        {"WarmupCosineLR", R"("total_num_steps": 2000, "warmup_max_lr": 0.5)"},
        {"OneCycle", R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2, "lr_range_test_step_size": 5)"},
        {"LRRangeTest", R"("decay_step_size": 5)"},
        {"Cosine", R"("total_num_steps": 10, "decay_num_steps": 5)"},
        {"Cosine", R"("total_num_steps": 10, "warmup_type": "linear")"}}) {
    expect_fault_with(fault(type, params), OTR_E_CONFIG,
                      {"is no parameter of scheduler.type", "leave it out"});
  }
  EXPECT_EQ(fault("Cosine", R"("total_num_steps": 10, "warmup_type": "log")").text, "");
  expect_fault_with(engine_fault(R"({"scheduler": {"params": {"min_ratio": 0.5}}})"), OTR_E_CONFIG,
                    {"min_ratio = 0.5 is given without scheduler.type", "\"Cosine\", \"WSD\""});
  expect_fault_with(fault("WSD", R"("min_ration": 0.1)"), OTR_E_CONFIG,
                    {"unknown key \"min_ration\" in scheduler.params", "\"min_ratio\""});
  expect_fault_with(fault("Cosin", R"("min_ratio": 0.1)"), OTR_E_CONFIG,
                    {"scheduler.type = \"Cosin\" is not legal", "nearest is \"Cosine\""});
}

TEST(Schedules, WhatIsRequiredIsNamed) {
  expect_fault(fault("WSD", ""), OTR_E_CONFIG,
               "line 1, column 24: scheduler.type = \"WSD\" needs scheduler.params.total_num_steps "
               "and scheduler.params.decay_num_steps; give both");
  for (const char* type : {"WarmupDecayLR", "WarmupCosineLR", "Cosine"}) {
    expect_fault_with(fault(type, ""), OTR_E_CONFIG,
                      {type, "needs scheduler.params.total_num_steps; give it"});
    expect_fault_with(fault(type, R"("total_num_steps": null)"), OTR_E_CONFIG, {"needs"});
  }
  expect_fault_with(fault("OneCycle", R"("cycle_max_lr": 1)"), OTR_E_CONFIG,
                    {"needs scheduler.params.cycle_min_lr; give it"});
}

TEST(Schedules, ValuesHaveRangesAndNoLists) {
  for (const auto& [type, params, text] :
       {std::tuple{"WarmupLR", R"("warmup_min_lr": [0.1, 0.2])",
                   "warmup_min_lr = a list is not legal; legal: a number of at least 0"},
        {"WarmupLR", R"("warmup_max_lr": [0.1])", "one value holds for all groups"},
        {"WarmupLR", R"("warmup_num_steps": "auto")", "has to be filled in"},
        {"WarmupLR", R"("warmup_num_steps": -1)", "legal: an integer of at least 0"},
        {"WarmupLR", R"("warmup_type": "cosine")", "one of \"log\", \"linear\""},
        {"WarmupLR", R"("last_batch_iteration": 5)", "is not possible: the schedule counts"},
        {"Cosine", R"("total_num_steps": 0)", "legal: an integer of at least 1"},
        {"Cosine", R"("total_num_steps": 1.5)", "legal: an integer"},
        {"Cosine", R"("min_ratio": 1.5)", "legal: a number from 0 to 1"},
        {"WSD", R"("decay_type": "exponential")", "\"linear\", \"cosine\", \"sqrt\""},
        {"OneCycle", R"("cycle_max_mom": 1)", "from 0 to below 1"},
        {"LRRangeTest", R"("lr_range_test_step_size": 0)", "at least 1"}}) {
    expect_fault_with(fault(type, params), OTR_E_CONFIG, {text});
  }
  EXPECT_EQ(fault("WarmupLR", R"("last_batch_iteration": -1)").text, "");
  EXPECT_EQ(engine_fault(R"({"scheduler": {"type": null, "params": {}}})").text, "");
}

TEST(Schedules, PlansThatCannotHoldAreRefused) {
  constexpr const char* kCycle = R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2, )";
  for (const auto& [type, params, parts] :
       {std::tuple{
            "WarmupCosineLR", std::string(R"("total_num_steps": 500)"),
            std::vector<std::string_view>{"total_num_steps = 500 is less than "
                                          "scheduler.params.warmup_num_steps = 1000 (default)",
                                          "lower warmup_num_steps, or raise total_num_steps"}},
        {"Cosine",
         R"("total_num_steps": 5, "warmup_num_steps": 6)",
         {"total_num_steps = 5 is less than scheduler.params.warmup_num_steps = 6 (line 1"}},
        {"WSD",
         R"("total_num_steps": 10, "warmup_num_steps": 6, "decay_num_steps": 5)",
         {"= 10 is less than", "warmup_num_steps = 6", "decay_num_steps = 5", "together"}},
        {"WSD", R"("total_num_steps": 10, "decay_num_steps": 9223372036854775807)", {"together"}},
        {"WarmupLR",
         R"("warmup_min_lr": 0.5, "warmup_max_lr": 0.1)",
         {"warmup_min_lr = 0.5 is more than scheduler.params.warmup_max_lr = 0.1"}},
        {"OneCycle", R"("cycle_min_lr": 0.3, "cycle_max_lr": 0.2)", {"is more than"}},
        {"OneCycle",
         std::string(kCycle) + R"("cycle_min_mom": 0.95)",
         {"cycle_min_mom = 0.95 is more than scheduler.params.cycle_max_mom = 0.9 (default)"}},
        {"OneCycle",
         std::string(kCycle) + R"("decay_lr_rate": 0.5)",
         {"decay_lr_rate = 0.5 has no effect beside scheduler.params.decay_step_size = 0",
          "give the step size"}}}) {
    const Fault found = fault(type, params);
    for (const std::string_view part : parts) expect_fault_with(found, OTR_E_CONFIG, {part});
  }
  const std::string sgd = R"("optimizer": {"type": "SGD"}, )";
  expect_fault_with(fault("OneCycle", std::string(kCycle) + R"("cycle_min_mom": 0.5)", sgd),
                    OTR_E_CONFIG, {"is about beta1, which optimizer.type = \"SGD\"", "has not"});
  EXPECT_EQ(fault("OneCycle", std::string(kCycle) + R"("cycle_momentum": false)", sgd).text, "");
  expect_fault_with(fault("OneCycle", std::string(kCycle) + R"("cycle_momentum": true)",
                          R"("optimizer": {"type": "Muon"}, )"),
                    OTR_E_CONFIG, {"is about beta1", "keeps, as in DeepSpeed"});
}

TEST(Schedules, WhatTheyReplaceIsSaid) {
  const auto warnings = [](std::string_view lr, std::string_view type, std::string_view params) {
    std::string all;
    const std::string text = scheduler(
        type, params, format_text(R"("optimizer": {{"type": "AdamW", "params": {{{}}}}}, )", lr));
    for (const std::string& warning : parse_engine(text, 1).warnings) all += warning;
    return all;
  };
  const char* lr = R"("lr": 0.1)";
  EXPECT_EQ(warnings(lr, "WarmupLR", ""), "");
  EXPECT_EQ(warnings(lr, "WarmupLR", R"("warmup_max_lr": 0.1)"), "");  // as DeepSpeed's users do
  EXPECT_NE(warnings(lr, "WarmupLR", R"("warmup_max_lr": 0.2)").find("lr = 0.1 has no effect"),
            std::string::npos);
  EXPECT_NE(warnings(lr, "LRRangeTest", "").find("has no effect"), std::string::npos);
  const char* cycle = R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2)";
  for (const char* key : {"muon_lr", "adam_lr"}) {
    const std::string text =
        std::string(R"({"optimizer": {"type": "Muon", "params": {")") + key +
        R"(": 0.1}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.2}}})";
    const auto said = parse_engine(text, 1).warnings;
    ASSERT_EQ(said.size(), 1U);
    EXPECT_NE(said[0].find(std::string(key) + " = 0.1 has no effect"), std::string::npos);
  }
  EXPECT_EQ(warnings("", "OneCycle", cycle), "");
  EXPECT_NE(warnings(R"("betas": [0.9, 0.95])", "OneCycle", cycle).find("cycle_momentum to false"),
            std::string::npos);
}

TEST(Schedules, TheyDecideWhatCanBeSet) {
  OptimizerConfig o =
      parse_optimizer(scheduler("WSD", R"("total_num_steps": 9, "decay_num_steps": 2)"));
  set_hyperparameter(o, "lr", 0.5);
  EXPECT_EQ(get_hyperparameter(o, "lr"), 0.5);
  o = parse_optimizer(scheduler("OneCycle", R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2)"));
  for (const std::string_view name : {"lr", "beta1", "beta2"}) {
    const Fault found = fault_of([&] { set_hyperparameter(o, name, 0.5); });
    expect_fault_with(found, OTR_E_STATE,
                      {name, "scheduler.type \"OneCycle\" sets it", "leave the scheduler out"});
  }
  set_hyperparameter(o, "eps", 0.5);
  o = parse_optimizer(scheduler("WarmupLR", R"("warmup_max_lr": 0.1)"));
  expect_fault_with(fault_of([&] { set_hyperparameter(o, "lr", 0.5); }), OTR_E_STATE,
                    {"set scheduler.params.warmup_max_lr to null"});
  set_hyperparameter(o, "beta1", 0.5);
}

}  // namespace
}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
// What each update rule may be given: its own parameters and states, and no others.
#include <cmath>

#include "core/base/text.h"
#include "tests/config/support.h"

namespace outrigger::config {
namespace {

std::string with_params(const char* type, const char* params) {
  return format_text(R"({{"type": "{}", "params": {{{}}}}})", type, params);
}

TEST(RuleKeys, EachTypeHasItsRuleDefaultsAndStates) {
  struct Expected {
    const char *type, *params;
    kernels::Rule rule;
    bool decoupled, exp_avg, exp_avg_sq;
    double lr, eps, beta2;
  };
  const Expected all[] = {
      {"Adam", R"("adam_w_mode": false)", kernels::Rule::adam, false, true, true, 1e-3, 1e-8,
       0.999},
      {"AdamW", "", kernels::Rule::adam, true, true, true, 1e-3, 1e-8, 0.999},
      {"Adagrad", "", kernels::Rule::adagrad, false, false, true, 1e-2, 1e-10, 0.999},
      {"Lion", "", kernels::Rule::lion, true, true, false, 1e-3, 1e-8, 0.99},
      {"SGD", "", kernels::Rule::sgd, false, false, false, 1e-3, 1e-8, 0.999},
      {"SGD", R"("momentum": 0.9)", kernels::Rule::sgd, false, true, false, 1e-3, 1e-8, 0.999},
      {"Lamb", "", kernels::Rule::lamb, false, true, true, 1e-3, 1e-8, 0.999},
      {"Muon", "", kernels::Rule::muon, true, true, true, 0.02, 1e-10, 0.95},
  };
  for (const Expected& e : all) {
    SCOPED_TRACE(e.type);
    const OptimizerConfig o = parse_optimizer(with_params(e.type, e.params));
    EXPECT_EQ(o.type, e.type);
    EXPECT_EQ(o.rule, e.rule);
    EXPECT_EQ(o.decoupled, e.decoupled);
    EXPECT_EQ(o.keeps_exp_avg(), e.exp_avg);
    EXPECT_EQ(o.keeps_exp_avg_sq(), e.exp_avg_sq);
    EXPECT_EQ(o.lr, e.lr);
    EXPECT_EQ(o.eps, e.eps);
    EXPECT_EQ(o.beta2, e.beta2);
  }
  EXPECT_EQ(parse_optimizer(with_params("Lion", R"("betas": [0.9, 0.5])")).beta2, 0.5);
  EXPECT_EQ(parse_optimizer(with_params("Adagrad", R"("lr": 0.5)")).lr, 0.5);
  const OptimizerConfig o = parse_optimizer(
      with_params("SGD", R"("momentum": 0.8, "dampening": 0.25, "weight_decay": 0.1)"));
  EXPECT_EQ(o.momentum, 0.8);
  EXPECT_EQ(o.dampening, 0.25);
  EXPECT_TRUE(parse_optimizer(with_params("SGD", R"("momentum": 0.8, "nesterov": true)")).nesterov);
  EXPECT_EQ(parse_optimizer(with_params("Lamb", R"("max_coeff": 3)")).max_coeff, 3);
}

TEST(RuleKeys, ParametersOfOtherRulesAreRefused) {
  expect_fault(optimizer_fault(with_params("Lion", R"("momentum": 0.9)")), OTR_E_CONFIG,
               "line 1, column 41: params.momentum = 0.9 is no parameter of type = \"Lion\" (line "
               "1, column 10), which has lr, betas, weight_decay, fp32_optimizer_states; leave it "
               "out");
  for (const char* text : {R"({"type": "SGD", "params": {"betas": [0.5, 0.5]}})",
                           R"({"type": "Adagrad", "params": {"betas": [0.5, 0.5]}})",
                           R"({"type": "SGD", "params": {"eps": 1e-6}})",
                           R"({"type": "AdamW", "params": {"nesterov": true}})",
                           R"({"type": "Adam", "params": {"max_coeff": 2}})",
                           R"({"type": "Lamb", "params": {"dampening": 0.5}})",
                           R"({"type": "Lion", "params": {"bias_correction": false}})"}) {
    expect_fault_with(optimizer_fault(text), OTR_E_CONFIG, {"is no parameter of", "leave it out"});
  }
  // The default said aloud asks for nothing.
  EXPECT_EQ(optimizer_fault(R"({"type": "SGD", "params": {"eps": 1e-8}})").status, OTR_OK);
}

TEST(RuleKeys, StatesThatARuleDoesNotKeepAreRefused) {
  const auto states = [](const char* type, const char* state) {
    return format_text(R"({{"type": "{}", "states": {{"{}": {{"format": "bfloat16"}}}}}})", type,
                       state);
  };
  expect_fault_with(
      optimizer_fault(states("Lion", "exp_avg_sq")), OTR_E_CONFIG,
      {"states.exp_avg_sq.format = \"bfloat16\" is about a state that type = \"Lion\"",
       "does not keep"});
  expect_fault_with(optimizer_fault(states("Adagrad", "exp_avg")), OTR_E_CONFIG, {"does not keep"});
  expect_fault_with(optimizer_fault(states("SGD", "exp_avg")), OTR_E_CONFIG, {"without momentum"});
  EXPECT_EQ(optimizer_fault(states("Lion", "exp_avg")).status, OTR_OK);
  EXPECT_EQ(optimizer_fault(states("Adagrad", "exp_avg_sq")).status, OTR_OK);
  // 8-bit blocks of a first moment need those of a second one only where there is one.
  EXPECT_EQ(
      optimizer_fault(R"({"type": "Lion", "states": {"exp_avg": {"format": "block8"}}})").status,
      OTR_OK);
  // DeepSpeed's key is about whatever there is.
  EXPECT_EQ(engine_fault(R"({"optimizer": {"type": "SGD"}, "zero_optimization": {"stage": 1},
        "bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                 "bf16_optimizer_states": true}})")
                .status,
            OTR_OK);
  // So is the one about float32 states: of those that are kept.
  EXPECT_EQ(optimizer_fault(R"({"type": "Lion", "params": {"fp32_optimizer_states": false},
        "states": {"exp_avg": {"format": "bfloat16"}}})")
                .status,
            OTR_OK);
  expect_fault_with(
      optimizer_fault(R"({"type": "Lion", "params": {"fp32_optimizer_states": false}})"),
      OTR_E_CONFIG, {"contradicts float32 moments"});
}

TEST(RuleKeys, ContradictionsAreRefused) {
  expect_fault_with(optimizer_fault(with_params("SGD", R"("nesterov": true)")), OTR_E_CONFIG,
                    {"nesterov = true needs momentum above 0 and dampening 0"});
  expect_fault_with(
      optimizer_fault(with_params("SGD", R"("nesterov": true, "momentum": 0.9, "dampening": 0.1)")),
      OTR_E_CONFIG, {"momentum 0.9 and dampening 0.1"});
  expect_fault_with(optimizer_fault(with_params("Lamb", R"("min_coeff": 20)")), OTR_E_CONFIG,
                    {"min_coeff = 20", "is more than", "max_coeff = 10"});
  expect_fault_with(optimizer_fault(with_params("SGD", R"("momentum": 1)")), OTR_E_CONFIG,
                    {"a number from 0 to below 1"});
  expect_fault_with(optimizer_fault(R"({"gradient_clipping": 1, "gradient_clipping_value": 0.5})"),
                    OTR_E_CONFIG,
                    {"gradient_clipping = 1", "contradicts", "gradient_clipping_value = 0.5"});
}

TEST(RuleKeys, ClippingByValueReplacesDeepSpeedsDefaultNorm) {
  const EngineConfig c = parse_engine(R"({"outrigger": {"gradient_clipping_value": 0.25}})", 1);
  EXPECT_EQ(c.optimizer.clip_value, 0.25);
  EXPECT_EQ(c.optimizer.gradient_clipping, 0);
  EXPECT_EQ(parse_engine(R"({"outrigger": {"seed": 1}})", 1).optimizer.gradient_clipping, 1);
}

TEST(RuleKeys, OutlierNormsAreLeftOutByDefaultOnly) {
  EXPECT_EQ(parse_engine("", 1).optimizer.outliers.window, 0);
  const EngineConfig c =
      parse_engine(R"({"outrigger": {"skip_outlier_norms": {"window": 64, "deviations": 4}}})", 1);
  EXPECT_EQ(c.optimizer.outliers.window, 64);
  EXPECT_EQ(c.optimizer.outliers.deviations, 4);
}

TEST(RuleKeys, WhatWouldHaveNoEffectIsRefused) {
  expect_fault_with(engine_fault(R"({"outrigger": {"skip_outlier_norms": {"deviations": 4}}})"),
                    OTR_E_CONFIG, {"deviations = 4", "has no effect without", "window"});
  expect_fault_with(engine_fault(R"({"outrigger": {"skip_outlier_norms": {"window": 1}}})"),
                    OTR_E_CONFIG, {"window = 1", "2 or more"});
  expect_fault_with(engine_fault(R"({"optimizer": {"type": "Host"},
        "outrigger": {"gradient_clipping_value": 0.5}})"),
                    OTR_E_CONFIG, {"gradient_clipping_value = 0.5", "Host", "gradient_clipping"});
}

// Only a split master needs its states where its parameters are.
TEST(RuleKeys, ADeviceTakesEveryRuleAndFormat) {
  for (const char* rule : {"AdamW", "Adam", "Adagrad", "Lion", "SGD", "Lamb", "Muon"}) {
    const std::string text = outrigger::format_text(
        R"({{"optimizer": {{"type": "{}"}}, "zero_optimization": {{"stage": 1}}}})", rule);
    EXPECT_EQ(fault_of([&] { (void)parse_engine(text, 1, EngineKind::device); }).text, "");
  }
  const auto with = [](const char* offload) {
    return outrigger::format_text(
        R"({{"bf16": {{"enabled": true}}, "outrigger": {{"states": {{"master": {{"format": "split"}},
            "exp_avg": {{"format": "block8"}}, "exp_avg_sq": {{"format": "block8"}}}}}},
            "zero_optimization": {{"stage": 1, "offload_optimizer": {{"device": "{}"}}}}}})",
        offload);
  };
  EXPECT_EQ(fault_of([&] { (void)parse_engine(with("none"), 1, EngineKind::device); }).text, "");
  expect_fault_with(fault_of([&] { (void)parse_engine(with("cpu"), 1, EngineKind::device); }),
                    OTR_E_UNSUPPORTED,
                    {"outrigger.states.master.format = \"split\"", "not built yet",
                     "one half on a device", "offload_optimizer.device to \"none\""});
  EXPECT_EQ(engine_fault(with("cpu")).text, "");
}

TEST(RuleKeys, AdagradInBfloat16WarnsOfWhatItsSumLoses) {
  const OptimizerConfig o =
      parse_optimizer(R"({"type": "Adagrad", "states": {"exp_avg_sq": {"format": "bfloat16"}}})");
  EXPECT_EQ(o.exp_avg_sq.rounding, Rounding::stochastic);
  EXPECT_TRUE(o.warnings.empty());
  const EngineConfig c = parse_engine(
      R"({"optimizer": {"type": "Adagrad"}, "zero_optimization": {"stage": 1},
          "bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                   "bf16_optimizer_states": true}})",
      1);
  std::string all;
  for (const std::string& w : c.warnings) all += w;
  EXPECT_NE(all.find("sum of squares in bfloat16"), std::string::npos) << all;
}

TEST(Hyperparameters, AreThoseOfTheRule) {
  OptimizerConfig o = parse_optimizer(with_params("SGD", R"("momentum": 0.9)"));
  set_hyperparameter(o, "momentum", 0.5);
  EXPECT_EQ(o.momentum, 0.5);
  expect_fault_with(
      fault_of([&] { set_hyperparameter(o, "beta1", 0.5); }), OTR_E_NOT_FOUND,
      {"no hyperparameter \"beta1\" of SGD", "there are lr, weight_decay, momentum, dampening"});
  // A state cannot come or go.
  expect_fault_with(fault_of([&] { set_hyperparameter(o, "momentum", 0); }), OTR_E_ARGUMENT,
                    {"made with momentum", "the old value 0.5 stays"});
  OptimizerConfig nesterov =
      parse_optimizer(with_params("SGD", R"("momentum": 0.9, "nesterov": true)"));
  expect_fault_with(fault_of([&] { set_hyperparameter(nesterov, "dampening", 0.5); }),
                    OTR_E_ARGUMENT, {"dampening = 0.5", "Nesterov"});
  OptimizerConfig plain = parse_optimizer(R"({"type": "SGD"})");
  expect_fault_with(fault_of([&] { set_hyperparameter(plain, "momentum", 0.9); }), OTR_E_ARGUMENT,
                    {"made without momentum"});
}

}  // namespace
}  // namespace outrigger::config

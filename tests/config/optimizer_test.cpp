// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "core/base/text.h"
#include "tests/config/support.h"

namespace outrigger::config {
namespace {

TEST(Optimizer, MomentsInFloat16AreExcludedWithTheReason) {
  for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
    expect_fault_with(optimizer_fault(outrigger::format_text(
                          "{{\"states\": {{\"{}\": {{\"format\": \"float16\"}}}}}}", moment)),
                      OTR_E_CONFIG, {moment, "excluded on purpose", "6e-8", "bfloat16"});
  }
}

TEST(Optimizer, DefaultsAreAdamWWithFloat32MomentsAndAnOpenMaster) {
  const OptimizerConfig o = parse_optimizer("");
  EXPECT_EQ(o.type, "AdamW");
  EXPECT_EQ(o.gradient_clipping, 0);
  EXPECT_FALSE(o.master_given);
  EXPECT_EQ(o.master.format, Format::float32);
  EXPECT_EQ(o.master.rounding, Rounding::stochastic);  // for bfloat16 weights that come later
  EXPECT_EQ(o.exp_avg.format, Format::float32);
  EXPECT_EQ(o.exp_avg_sq.format, Format::float32);
  EXPECT_EQ(parse_optimizer("{\"params\": {\"lr\": 0.5}}").gradient_clipping, 0);
}

TEST(Optimizer, ReadsItsKeys) {
  const OptimizerConfig o = parse_optimizer(
      "{\"type\": \"Adam\", \"params\": {\"lr\": 2e-4, \"adam_w_mode\": false}, "
      "\"gradient_clipping\": 0.5, \"seed\": 7, \"states\": {\"master\": {\"format\": "
      "\"bfloat16\"}, \"exp_avg\": {\"format\": \"bfloat16\", \"rounding\": \"nearest\"}}}");
  EXPECT_EQ(o.type, "Adam");
  EXPECT_FALSE(o.decoupled);
  EXPECT_EQ(o.lr, 2e-4);
  EXPECT_EQ(o.gradient_clipping, 0.5);
  EXPECT_EQ(o.seed, 7U);
  EXPECT_TRUE(o.master_given);
  EXPECT_EQ(o.master.format, Format::bfloat16);
  EXPECT_EQ(o.master.rounding, Rounding::stochastic);
  EXPECT_EQ(o.exp_avg.format, Format::bfloat16);
  EXPECT_EQ(o.exp_avg.rounding, Rounding::nearest);
  EXPECT_EQ(
      parse_optimizer("{\"states\": {\"master\": {\"rounding\": \"nearest\"}}}").master.rounding,
      Rounding::nearest);
}

TEST(Optimizer, FaultsUseThePathsOfItsText) {
  expect_fault(optimizer_fault("{\"params\": {\"lr\": -1}}"), OTR_E_CONFIG,
               "line 1, column 19: params.lr = -1 is not legal; legal: a number of at least 0, at "
               "most 1e+30");
  expect_fault(optimizer_fault("{\"parms\": {}}"), OTR_E_CONFIG,
               "line 1, column 2: unknown key \"parms\" at the top level; the nearest known key is "
               "\"params\"");
  expect_fault(
      optimizer_fault("{\"optimizer\": {}}"), OTR_E_CONFIG,
      "line 1, column 2: unknown key \"optimizer\" at the top level; known here: type, params, "
      "gradient_clipping, gradient_clipping_value, check_grad_overflow, states, seed, "
      "skip_outlier_norms, scheduler");
  expect_fault(optimizer_fault("{\"params\": {\"velocity\": 0.9}}"), OTR_E_CONFIG,
               "line 1, column 13: unknown key \"velocity\" in params; known here: lr, betas, eps, "
               "weight_decay, bias_correction, adam_w_mode, momentum, dampening, nesterov, "
               "muon_lr, adam_lr, "
               "ns_steps, adjust_lr_fn, ns_method, per_head_muon, max_coeff, min_coeff, "
               "torch_adam, fp32_optimizer_states, amsgrad, max_grad_norm");
  expect_fault(
      optimizer_fault("{\"type\": \"MuSGD\", \"params\": {\"velocity\": 0.9}}"), OTR_E_UNSUPPORTED,
      "line 1, column 10: type = \"MuSGD\" is recognised but not built yet: use Adam or AdamW or "
      "Adagrad or Lion or SGD or Lamb or Muon or Host");
  expect_fault(optimizer_fault("{\"type\": \"Host\"}"), OTR_E_CONFIG,
               "line 1, column 10: type = \"Host\" is for engines, whose host updates the weights; "
               "shards are updated here: use \"AdamW\" or another rule");
  expect_fault_with(optimizer_fault("{\"states\": {\"master\": {\"format\": \"block8\"}}}"),
                    OTR_E_CONFIG, {"states.master.format = \"block8\"", "split"});
  expect_fault_with(optimizer_fault("{\"states\": {\"exp_avg\": {\"format\": \"block8\"}}}"),
                    OTR_E_CONFIG, {"states.exp_avg.format = \"block8\"", "exp_avg_sq"});
  EXPECT_EQ(optimizer_fault("{\"states\": {\"exp_avg_sq\": {\"format\": \"block8\"}}}").status,
            OTR_OK);
  expect_fault_with(optimizer_fault("{\"states\": {\"exp_avg\": {\"format\": \"split\"}}}"),
                    OTR_E_CONFIG, {"states.exp_avg.format = \"split\"", "block8"});
  expect_fault_with(optimizer_fault("{\"states\": {\"master\": {\"format\": \"split\", "
                                    "\"rounding\": \"stochastic\"}}}"),
                    OTR_E_CONFIG,
                    {"states.master.rounding = \"stochastic\" has nothing to round, as the format "
                     "is split"});
  expect_fault_with(optimizer_fault("{\"states\": {\"exp_avg\": {\"rounding\": \"stochastic\"}}}"),
                    OTR_E_CONFIG,
                    {"states.exp_avg.rounding = \"stochastic\" has nothing to round"});
  expect_fault_with(optimizer_fault("{\"params\": {\"fp32_optimizer_states\": false}}"),
                    OTR_E_CONFIG, {"contradicts float32 moments"});
  EXPECT_EQ(optimizer_fault("{\"seed\": -1}").status, OTR_E_CONFIG);
}

TEST(Hyperparameters, AreSetAndReadByName) {
  OptimizerConfig o;
  for (const std::string_view name : {"lr", "weight_decay", "eps", "beta1", "beta2"}) {
    set_hyperparameter(o, name, 0.25);
    EXPECT_EQ(get_hyperparameter(o, name), 0.25);
  }
  EXPECT_EQ(o.lr, 0.25);
  EXPECT_EQ(o.beta2, 0.25);
  expect_fault(
      fault_of([&] { set_hyperparameter(o, "beta2", 1.0); }), OTR_E_ARGUMENT,
      "beta2 = 1 is not legal; legal: a number from 0 to below 1; the old value 0.25 stays");
  expect_fault(fault_of([&] { set_hyperparameter(o, "learning_rate", 1.0); }), OTR_E_NOT_FOUND,
               "no hyperparameter \"learning_rate\" of AdamW; there are lr, weight_decay, eps, "
               "beta1, beta2");
  expect_fault(
      fault_of([&] { (void)get_hyperparameter(o, "beta"); }), OTR_E_NOT_FOUND,
      "no hyperparameter \"beta\" of AdamW; the nearest is \"beta1\"; there are lr, weight_decay, "
      "eps, beta1, beta2");
  for (const double value :
       {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), -1e-300}) {
    EXPECT_EQ(fault_of([&] { set_hyperparameter(o, "lr", value); }).status, OTR_E_ARGUMENT);
  }
  EXPECT_EQ(fault_of([&] { set_hyperparameter(o, "eps", 0); }).status, OTR_E_ARGUMENT);
  EXPECT_EQ(o.lr, 0.25);
  set_hyperparameter(o, "lr", 0);
  EXPECT_EQ(o.lr, 0);
}

}  // namespace
}  // namespace outrigger::config

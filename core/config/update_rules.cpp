// SPDX-License-Identifier: Apache-2.0
#include "core/config/update_rules.h"

#include "core/base/text.h"

namespace outrigger::config {
namespace {

constexpr Hyperparameter kHyperparameters[] = {
    {"lr", "optimizer.params.lr", &OptimizerConfig::lr},
    {"adam_lr", "optimizer.params.adam_lr", &OptimizerConfig::adam_lr},
    {"weight_decay", "optimizer.params.weight_decay", &OptimizerConfig::weight_decay},
    {"eps", "optimizer.params.eps", &OptimizerConfig::eps},
    {"beta1", "optimizer.params.betas", &OptimizerConfig::beta1},
    {"beta2", "optimizer.params.betas", &OptimizerConfig::beta2},
    {"momentum", "optimizer.params.momentum", &OptimizerConfig::momentum},
    {"dampening", "optimizer.params.dampening", &OptimizerConfig::dampening},
};

constexpr std::string_view kAdamKeys =
    "|betas|eps|weight_decay|bias_correction|adam_w_mode|torch_adam|fp32_optimizer_states|";
constexpr UpdateRule kUpdateRules[] = {
    {"Adam", kernels::Rule::adam, kAdamKeys},
    {"AdamW", kernels::Rule::adam, kAdamKeys},
    {"Adagrad", kernels::Rule::adagrad, "|eps|weight_decay|fp32_optimizer_states|"},
    {"Lion", kernels::Rule::lion, "|betas|weight_decay|fp32_optimizer_states|"},
    {"SGD", kernels::Rule::sgd, "|momentum|dampening|nesterov|weight_decay|fp32_optimizer_states|"},
    {"Lamb", kernels::Rule::lamb,
     "|betas|eps|weight_decay|bias_correction|max_coeff|min_coeff|fp32_optimizer_states|"},
    {"Muon", kernels::Rule::muon,
     "|momentum|nesterov|weight_decay|muon_lr|ns_steps|ns_method|adjust_lr_fn|per_head_muon|adam_"
     "lr|"
     "betas|eps|bias_correction|adam_w_mode|fp32_optimizer_states|"},
    {"Host", kernels::Rule::sgd, "|"},
};

// Where a type's default is not the table's. Source: DeepSpeed's CPUAdagrad, CPULion and
// MuonWithAuxAdam.
struct OwnDefault {
  std::string_view type, key;
  const char* value;
};
constexpr OwnDefault kOwnDefaults[] = {
    {"Adagrad", "optimizer.params.lr", "0.01"},
    {"Adagrad", "optimizer.params.eps", "1e-10"},
    {"Lion", "optimizer.params.betas", "[0.9, 0.99]"},
    {"Muon", "optimizer.params.lr", "0.02"},
    {"Muon", "optimizer.params.momentum", "0.95"},
    {"Muon", "optimizer.params.nesterov", "true"},
    {"Muon", "optimizer.params.betas", "[0.9, 0.95]"},
    {"Muon", "optimizer.params.eps", "1e-10"},
};

}  // namespace

std::span<const Hyperparameter> hyperparameters() { return kHyperparameters; }
std::span<const UpdateRule> update_rules() { return kUpdateRules; }

const UpdateRule& rule_of(std::string_view type) {
  for (const UpdateRule& rule : kUpdateRules) {
    if (rule.type == type) return rule;
  }
  return kUpdateRules[0];
}

bool has_key(const UpdateRule& rule, std::string_view key) {
  constexpr std::string_view kPrefix = "optimizer.params.";
  const std::string_view leaf = key.substr(kPrefix.size());
  return leaf == "lr" || rule.keys.find(format_text("|{}|", leaf)) != std::string_view::npos;
}

void set_own_defaults(Values& values, std::string_view type) {
  for (const OwnDefault& own : kOwnDefaults) {
    if (own.type != type || values.from_user(own.key)) continue;
    values.set(own.key, Json::parse(own.value), Origin::fallback);
  }
}

}  // namespace outrigger::config

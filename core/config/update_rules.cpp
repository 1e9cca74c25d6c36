// SPDX-License-Identifier: Apache-2.0
#include "core/config/update_rules.h"

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/text.h"

#include <string>
#include <vector>

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

namespace {

// "lr, weight_decay, beta1, beta2": what can be set between steps.
std::string names_of(const UpdateRule& rule) {
  std::string names;
  for (const Hyperparameter& entry : hyperparameters()) {
    if (!has_key(rule, entry.key)) continue;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  return names;
}

const Hyperparameter& find(const OptimizerConfig& optimizer, std::string_view name) {
  const UpdateRule& rule = rule_of(optimizer.type);
  std::vector<std::string> names;
  for (const Hyperparameter& entry : hyperparameters()) {
    if (!has_key(rule, entry.key)) continue;
    if (entry.name == name) return entry;
    names.emplace_back(entry.name);
  }
  if (optimizer.host) {
    fail(OTR_E_NOT_FOUND,
         "no hyperparameter \"{}\": with optimizer.type \"Host\" the host keeps its own; there is "
         "lr, for the reports",
         printable(name));
  }
  const std::string guess = nearest(name, names);
  fail(OTR_E_NOT_FOUND, "no hyperparameter \"{}\" of {}; {}there are {}", printable(name),
       optimizer.type, guess.empty() ? "" : format_text("the nearest is \"{}\"; ", guess),
       names_of(rule));
}

// A scheduled value is not the caller's: the next update would replace it.
void require_free(const OptimizerConfig& optimizer, std::string_view name) {
  const ScheduleConfig& schedule = optimizer.schedule;
  if (!schedule.sets(name)) return;
  std::string_view way = "to set rates here, use \"Cosine\", \"WSD\" or \"WarmupCosineLR\"";
  if (name != "lr") way = "set scheduler.params.cycle_momentum to false to set betas here";
  if (schedule.warmup_max_lr) way = "set scheduler.params.warmup_max_lr to null to set rates here";
  fail(OTR_E_STATE,
       "{} cannot be set: the configuration's scheduler.type \"{}\" sets it; {}, or leave the "
       "scheduler out",
       name, schedule.name, way);
}

}  // namespace

void set_hyperparameter(OptimizerConfig& optimizer, std::string_view name, double value) {
  const Hyperparameter& entry = find(optimizer, name);
  require_free(optimizer, name);
  const Key& key = *find_key(entry.key);
  const bool in_range = value >= key.low && (key.high_open ? value < key.high : value <= key.high);
  if (!in_range) {  // NaN is not in range
    Key single = key;
    single.type = Type::number;
    fail(OTR_E_ARGUMENT, "{} = {} is not legal; legal: {}; the old value {} stays", name, value,
         legal_values(single), optimizer.*entry.member);
  }
  if (entry.member == &OptimizerConfig::momentum && optimizer.rule == kernels::Rule::sgd &&
      (value != 0) != optimizer.keeps_exp_avg()) {
    fail(OTR_E_ARGUMENT,
         "momentum = {}: this optimizer was made {} momentum, which decides whether a state is "
         "kept; the old value {} stays",
         value, optimizer.keeps_exp_avg() ? "with" : "without", optimizer.momentum);
  }
  if (entry.member == &OptimizerConfig::dampening && optimizer.nesterov && value != 0) {
    fail(OTR_E_ARGUMENT, "dampening = {}: Nesterov's momentum needs 0; the old value 0 stays",
         value);
  }
  optimizer.*entry.member = value;
  if (entry.member == &OptimizerConfig::adam_lr) optimizer.adam_lr_follows = false;
  if (entry.member == &OptimizerConfig::lr && optimizer.adam_lr_follows) optimizer.adam_lr = value;
}

std::vector<std::string_view> free_hyperparameters(const OptimizerConfig& optimizer) {
  std::vector<std::string_view> names;
  for (const Hyperparameter& entry : hyperparameters()) {
    const bool follows = entry.member == &OptimizerConfig::adam_lr && optimizer.adam_lr_follows;
    if (has_key(rule_of(optimizer.type), entry.key) && !optimizer.schedule.sets(entry.name) &&
        !follows) {
      names.push_back(entry.name);
    }
  }
  return names;
}

double get_hyperparameter(const OptimizerConfig& optimizer, std::string_view name) {
  const Hyperparameter& entry = find(optimizer, name);
  return optimizer.*entry.member;
}

}  // namespace outrigger::config

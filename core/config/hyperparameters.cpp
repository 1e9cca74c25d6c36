// SPDX-License-Identifier: Apache-2.0
// Hyperparameters by name, between steps.
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/config/update_rules.h"

namespace outrigger::config {
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

double get_hyperparameter(const OptimizerConfig& optimizer, std::string_view name) {
  const Hyperparameter& entry = find(optimizer, name);
  return optimizer.*entry.member;
}

}  // namespace outrigger::config

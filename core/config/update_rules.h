// SPDX-License-Identifier: Apache-2.0
// Which hyperparameters each type of optimizer has, and how they are read.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/config/config.h"
#include "core/config/values.h"

namespace outrigger::config {

// What can be set between steps, by its public name.
struct Hyperparameter {
  std::string_view name;
  std::string_view key;  // whose range holds
  double OptimizerConfig::* member;
};
[[nodiscard]] std::span<const Hyperparameter> hyperparameters();

struct UpdateRule {
  std::string_view type;
  kernels::Rule rule;
  std::string_view keys;  // of optimizer.params, beside lr, each between bars
};
[[nodiscard]] std::span<const UpdateRule> update_rules();
[[nodiscard]] const UpdateRule& rule_of(std::string_view type);

// Of optimizer.params, by its path.
[[nodiscard]] bool has_key(const UpdateRule& rule, std::string_view key);

// Puts the type's defaults in place of the key table's.
void set_own_defaults(Values& values, std::string_view type);

// Type, hyperparameters, clipping and seed from checked values, into which the type's own defaults
// go. Throws OTR_E_CONFIG for what the type has no use for.
void read_optimizer(Values& values, OptimizerConfig& optimizer);

// Of these, what is Muon's.
void read_muon(Values& values, OptimizerConfig& optimizer);

}  // namespace outrigger::config

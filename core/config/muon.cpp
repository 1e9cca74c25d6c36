// SPDX-License-Identifier: Apache-2.0
// Muon: which parameters are matrices, and what becomes of the others.
#include <algorithm>
#include <cctype>
#include <string>

#include "core/base/error.h"
#include "core/config/update_rules.h"

namespace outrigger::config {
namespace {

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

}  // namespace

bool OptimizerConfig::is_matrix(std::string_view name, size_t dimensions) const {
  if (host || rule != kernels::Rule::muon || dimensions < 2) return false;
  const std::string lower = in_lower_case(name);
  return std::ranges::none_of(
      adam_parameters, [&](const std::string& part) { return lower.find(part) != lower.npos; });
}

OptimizerConfig OptimizerConfig::elementwise() const {
  OptimizerConfig other = *this;
  other.rule = kernels::Rule::adam;
  other.lr = adam_lr;
  other.decoupled = adam_decoupled;
  return other;
}

// muon_lr and adam_lr are each half's own; lr is for the one that has none. Where nothing is given,
// the defaults differ.
void read_muon(Values& values, OptimizerConfig& o) {
  constexpr std::string_view kLr = "optimizer.params.lr", kMuonLr = "optimizer.params.muon_lr";
  constexpr std::string_view kAdamLr = "optimizer.params.adam_lr";
  constexpr double kDefaultAdamLr = 3e-4;  // DeepSpeed's
  if (values.from_user(kLr) && !values.is_null(kMuonLr) && !values.is_null(kAdamLr)) {
    fail(OTR_E_CONFIG, "{} has no effect beside {} and {}; leave one of the three out",
         values.lead(kLr), values.name(kMuonLr), values.name(kAdamLr));
  }
  o.adam_lr_follows = values.is_null(kAdamLr) && values.from_user(kLr);
  o.adam_lr = !values.is_null(kAdamLr) ? values.number(kAdamLr)
              : o.adam_lr_follows      ? values.number(kLr)
                                       : kDefaultAdamLr;
  values.set(kAdamLr, o.adam_lr, values.from_user(kAdamLr) ? Origin::user : Origin::derived);
  if (!values.is_null(kMuonLr)) {
    o.lr = values.number(kMuonLr);
    o.adam_lr_follows = false;
  }
  o.adam_decoupled = values.flag("optimizer.params.adam_w_mode");
  o.ns_steps = static_cast<int32_t>(values.count("optimizer.params.ns_steps"));
  o.matches_adam = values.text("optimizer.params.adjust_lr_fn") == "match_rms_adamw";
  constexpr std::string_view kNames = "outrigger.muon.adam_parameters";
  for (const Json& part : values.json(kNames)) {
    if (part.get<std::string>().empty()) {
      fail(OTR_E_CONFIG, "{} has an empty text, which is in every name; leave it out, or use AdamW",
           values.lead(kNames));
    }
    o.adam_parameters.push_back(in_lower_case(part.get<std::string>()));
  }
}

}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0

#include <string>

#include "core/base/error.h"
#include "core/config/update_rules.h"

namespace outrigger::config {
namespace {

bool given(const Values& values, std::string_view key, std::string_view neutral) {
  const Json& value = values.json(key);
  return values.given(key) && !(value.is_string() && value == neutral);
}

// "|betas|eps|" as ", betas, eps".
std::string listed(std::string_view keys) {
  std::string text;
  for (const char c : keys.substr(0, keys.size() - 1)) {
    text += c == '|' ? ", " : std::string(1, c);
  }
  return text;
}

// A parameter of another rule would be lost without a word.
void check_params(const Values& values, const UpdateRule& rule) {
  for (const UpdateRule& other : update_rules()) {
    for (size_t at = 1; at < other.keys.size();) {
      const size_t end = other.keys.find('|', at);
      const std::string key = format_text("optimizer.params.{}", other.keys.substr(at, end - at));
      at = end + 1;
      if (has_key(rule, key) || !values.given(key)) continue;
      if (rule.type == "Host") {
        fail(OTR_E_CONFIG,
             "{} is for the engine's own rules, and {} leaves update and states to the host; leave "
             "it out",
             values.lead(key), values.name("optimizer.type"));
      }
      fail(OTR_E_CONFIG, "{} is no parameter of {}, which has lr{}; leave it out", values.lead(key),
           values.name("optimizer.type"), listed(rule.keys));
    }
  }
}

// The same of states that the rule does not keep.
void check_states(const Values& values, const OptimizerConfig& optimizer) {
  struct StateKey {
    std::string_view key, neutral;
    bool kept;
  };
  const bool m = optimizer.keeps_exp_avg(), v = optimizer.keeps_exp_avg_sq();
  const StateKey keys[] = {
      {"outrigger.states.exp_avg.format", "float32", m},
      {"outrigger.states.exp_avg.rounding", "nearest", m},
      {"outrigger.states.exp_avg_sq.format", "float32", v},
      {"outrigger.states.exp_avg_sq.rounding", "nearest", v},
      {"bf16.bf16_optimizer_states", "", !optimizer.host},  // of no state it asks for nothing
  };
  for (const auto& [key, neutral, kept] : keys) {
    if (kept || !given(values, key, neutral)) continue;
    fail(OTR_E_CONFIG, "{} is about a state that {} does not keep{}; leave it out",
         values.lead(key), values.name("optimizer.type"),
         optimizer.type == "SGD" && !m ? " without momentum" : "");
  }
  constexpr std::string_view kRounding = "outrigger.states.master.rounding";
  if (optimizer.host && !values.is_null(kRounding) && values.text(kRounding) == "stochastic") {
    fail(OTR_E_CONFIG,
         "{} contradicts {}: what the host writes is rounded to nearest; use \"nearest\", or a "
         "float32 master",
         values.lead(kRounding), values.name("optimizer.type"));
  }
}

void check_ranges(const Values& values, const OptimizerConfig& o) {
  if (o.rule == kernels::Rule::sgd && o.nesterov && (o.momentum == 0 || o.dampening != 0)) {
    fail(OTR_E_CONFIG,
         "{} needs momentum above 0 and dampening 0; it has momentum {} and dampening {}",
         values.lead("optimizer.params.nesterov"), o.momentum, o.dampening);
  }
  if (o.min_coeff > o.max_coeff) {
    fail(OTR_E_CONFIG, "{} is more than {}; the trust ratio lies between the two",
         values.lead("optimizer.params.min_coeff"), values.name("optimizer.params.max_coeff"));
  }
  if (o.host && o.clip_value > 0) {
    fail(OTR_E_CONFIG,
         "{} is for the engine's own rules, and {} leaves the update to the host; use "
         "gradient_clipping, whose coefficient the report gives to the host, or clip there",
         values.lead("outrigger.gradient_clipping_value"), values.name("optimizer.type"));
  }
  constexpr std::string_view kNames = "outrigger.muon.adam_parameters";
  if (o.rule != kernels::Rule::muon && values.given(kNames)) {
    fail(OTR_E_CONFIG, "{} is for Muon, and {} updates all parameters alike; leave it out",
         values.lead(kNames), values.name("optimizer.type"));
  }
  constexpr std::string_view kWindow = "outrigger.skip_outlier_norms.window";
  if (o.outliers.window == 1) {
    fail(OTR_E_CONFIG, "{} is not legal: of one norm there is no deviation; use 2 or more, or 0",
         values.lead(kWindow));
  }
  constexpr std::string_view kDeviations = "outrigger.skip_outlier_norms.deviations";
  if (o.outliers.window == 0 && values.given(kDeviations)) {
    fail(OTR_E_CONFIG, "{} has no effect without {}; set that to the number of norms to look at",
         values.lead(kDeviations), values.name(kWindow));
  }
  if (o.gradient_clipping > 0 && o.clip_value > 0) {
    if (values.from_user("gradient_clipping")) {
      fail(OTR_E_CONFIG, "{} contradicts {}; keep one of the two, or set the other to 0",
           values.lead("gradient_clipping"), values.name("outrigger.gradient_clipping_value"));
    }
  }
}

}  // namespace

void read_optimizer(Values& values, OptimizerConfig& optimizer) {
  const auto number = [&](std::string_view name) {
    return values.number(format_text("optimizer.params.{}", name));
  };
  const std::string type = values.text("optimizer.type");
  const UpdateRule& rule = rule_of(type);
  set_own_defaults(values, type);
  const bool w_mode = values.flag("optimizer.params.adam_w_mode");
  if (type == "AdamW" && !w_mode && values.from_user("optimizer.type")) {
    fail(OTR_E_CONFIG,
         "{} contradicts {}: AdamW's decay is always decoupled; use type \"Adam\" for L2, or leave "
         "adam_w_mode out",
         values.lead("optimizer.params.adam_w_mode"), values.name("optimizer.type"));
  }
  check_params(values, rule);
  const bool adam = rule.rule == kernels::Rule::adam;
  optimizer.host = type == "Host";
  optimizer.rule = rule.rule;
  const bool muon = rule.rule == kernels::Rule::muon;
  optimizer.decoupled = adam ? w_mode : muon || rule.rule == kernels::Rule::lion;
  optimizer.type = !adam ? type : w_mode ? "AdamW" : "Adam";
  optimizer.bias_correction = values.flag("optimizer.params.bias_correction");
  optimizer.lr = number("lr");
  optimizer.eps = number("eps");
  optimizer.weight_decay = number("weight_decay");
  optimizer.beta1 = values.json("optimizer.params.betas")[0].get<double>();
  optimizer.beta2 = values.json("optimizer.params.betas")[1].get<double>();
  optimizer.momentum = number("momentum");
  optimizer.dampening = number("dampening");
  optimizer.nesterov = values.flag("optimizer.params.nesterov");
  if (muon) read_muon(values, optimizer);
  optimizer.min_coeff = number("min_coeff");
  optimizer.max_coeff = number("max_coeff");
  optimizer.gradient_clipping = values.number("gradient_clipping");
  optimizer.clip_value = values.number("outrigger.gradient_clipping_value");
  optimizer.outliers = {values.count("outrigger.skip_outlier_norms.window"),
                        values.number("outrigger.skip_outlier_norms.deviations")};
  optimizer.seed = values.json("outrigger.seed").get<uint64_t>();
  check_states(values, optimizer);
  check_ranges(values, optimizer);
  // DeepSpeed's default of 1.0 is not meant where values are clipped.
  if (optimizer.clip_value > 0) optimizer.gradient_clipping = 0;
  if (optimizer.clip_value > 0) values.set("gradient_clipping", 0.0, Origin::derived);
}

}  // namespace outrigger::config

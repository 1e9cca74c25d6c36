// SPDX-License-Identifier: Apache-2.0
#include "core/config/hyperparameters.h"

#include <string>
#include <vector>

#include "core/context/error.h"
#include "core/context/nearest.h"

namespace outrigger::config {
namespace {

struct Hyperparameter {
  std::string_view name;
  std::string_view key;  // whose range holds
  double OptimizerConfig::* member;
};

constexpr Hyperparameter kHyperparameters[] = {
    {"lr", "optimizer.params.lr", &OptimizerConfig::lr},
    {"weight_decay", "optimizer.params.weight_decay", &OptimizerConfig::weight_decay},
    {"eps", "optimizer.params.eps", &OptimizerConfig::eps},
    {"beta1", "optimizer.params.betas", &OptimizerConfig::beta1},
    {"beta2", "optimizer.params.betas", &OptimizerConfig::beta2},
};

const Hyperparameter& find(std::string_view name) {
  std::vector<std::string> names;
  for (const Hyperparameter& entry : kHyperparameters) {
    if (entry.name == name) return entry;
    names.emplace_back(entry.name);
  }
  const std::string guess = nearest(name, names);
  fail(OTR_E_NOT_FOUND, "no hyperparameter \"{}\"; {}there are lr, weight_decay, eps, beta1, beta2",
       printable(name), guess.empty() ? "" : format_text("the nearest is \"{}\"; ", guess));
}

void require_own(const OptimizerConfig& optimizer, std::string_view name) {
  if (!optimizer.host || name == "lr") return;
  fail(
      OTR_E_NOT_FOUND,
      "no hyperparameter \"{}\": with optimizer.type \"Host\" the host keeps its own; there is lr, "
      "for the reports",
      name);
}

// Keys that say how the engine's own Adam works, and the values that mean nothing beside a host's
// optimizer: the default, and what the effective configuration shows.
struct OfAdam {
  std::string_view key, neutral;
};
constexpr OfAdam kOfAdam[] = {
    {"optimizer.params.betas", ""},
    {"optimizer.params.eps", ""},
    {"optimizer.params.weight_decay", ""},
    {"optimizer.params.bias_correction", ""},
    {"optimizer.params.adam_w_mode", ""},
    {"optimizer.params.fp32_optimizer_states", ""},
    {"bf16.bf16_optimizer_states", ""},
    {"outrigger.states.exp_avg.format", "float32"},
    {"outrigger.states.exp_avg.rounding", "nearest"},
    {"outrigger.states.exp_avg_sq.format", "float32"},
    {"outrigger.states.exp_avg_sq.rounding", "nearest"},
};

void check_host(const Values& values) {
  for (const auto& [key, neutral] : kOfAdam) {
    const Json& value = values.json(key);
    if (!values.from_user(key) || value == Json::parse(values.at(key).key->fallback) ||
        (value.is_string() && value == neutral)) {
      continue;
    }
    fail(OTR_E_CONFIG,
         "{} is for the engine's own Adam, and {} leaves update and states to the host; leave it "
         "out",
         values.lead(key), values.name("optimizer.type"));
  }
  constexpr std::string_view kRounding = "outrigger.states.master.rounding";
  if (!values.is_null(kRounding) && values.text(kRounding) == "stochastic") {
    fail(OTR_E_CONFIG,
         "{} contradicts {}: what the host writes is rounded to nearest; use \"nearest\", or a "
         "float32 master",
         values.lead(kRounding), values.name("optimizer.type"));
  }
}

}  // namespace

void set_hyperparameter(OptimizerConfig& optimizer, std::string_view name, double value) {
  const Hyperparameter& entry = find(name);
  require_own(optimizer, name);
  const Key& key = *find_key(entry.key);
  const bool in_range = value >= key.low && (key.high_open ? value < key.high : value <= key.high);
  if (!in_range) {  // NaN is not in range
    Key single = key;
    single.type = Type::number;
    fail(OTR_E_ARGUMENT, "{} = {} is not legal; legal: {}; the old value {} stays", name, value,
         legal_values(single), optimizer.*entry.member);
  }
  optimizer.*entry.member = value;
}

double get_hyperparameter(const OptimizerConfig& optimizer, std::string_view name) {
  const Hyperparameter& entry = find(name);
  require_own(optimizer, name);
  return optimizer.*entry.member;
}

void read_optimizer(const Values& values, OptimizerConfig& optimizer) {
  const bool w_mode = values.flag("optimizer.params.adam_w_mode");
  const std::string type = values.text("optimizer.type");
  if (type == "AdamW" && !w_mode && values.from_user("optimizer.type")) {
    fail(OTR_E_CONFIG,
         "{} contradicts {}: AdamW's decay is always decoupled; use type \"Adam\" for L2, or leave "
         "adam_w_mode out",
         values.lead("optimizer.params.adam_w_mode"), values.name("optimizer.type"));
  }
  optimizer.host = type == "Host";
  if (optimizer.host) check_host(values);
  optimizer.decoupled = w_mode;
  optimizer.type = optimizer.host ? "Host" : w_mode ? "AdamW" : "Adam";
  optimizer.bias_correction = values.flag("optimizer.params.bias_correction");
  optimizer.lr = values.number("optimizer.params.lr");
  optimizer.eps = values.number("optimizer.params.eps");
  optimizer.weight_decay = values.number("optimizer.params.weight_decay");
  optimizer.beta1 = values.json("optimizer.params.betas")[0].get<double>();
  optimizer.beta2 = values.json("optimizer.params.betas")[1].get<double>();
  optimizer.gradient_clipping = values.number("gradient_clipping");
  optimizer.seed = values.json("outrigger.seed").get<uint64_t>();
}

}  // namespace outrigger::config

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

}  // namespace

void set_hyperparameter(OptimizerConfig& optimizer, std::string_view name, double value) {
  const Hyperparameter& entry = find(name);
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
  return optimizer.*find(name).member;
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
  optimizer.decoupled = w_mode;
  optimizer.type = w_mode ? "AdamW" : "Adam";
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

// SPDX-License-Identifier: Apache-2.0
#include "core/engine/abilities.h"

#include <array>
#include <string>

#include "core/base/error.h"

namespace outrigger::engine {
namespace {

using device::Abilities;
using kernels::Format;

constexpr std::array<const char*, 6> kRules{"Adam", "Adagrad", "Lion", "SGD", "Lamb", "Muon"};

template <typename NameOf>
std::string names(uint64_t bits, uint32_t count, const NameOf& name_of) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i) {
    if (!Abilities::has(bits, i)) continue;
    const std::string name = name_of(i);
    if (text.ends_with(name)) continue;  // two formats that have one name
    text += (text.empty() ? "" : ", ") + name;
  }
  return text.empty() ? "nothing" : text;
}

std::string format_names(uint64_t bits) {
  return names(bits, static_cast<uint32_t>(Format::positive_block8) + 1,
               [](uint32_t i) { return std::string(kernels::name_of(static_cast<Format>(i))); });
}

[[noreturn]] void refuse(const device::Device& device, const std::string& what,
                         const std::string& can) {
  fail(OTR_E_UNSUPPORTED,
       "{}: the plugin \"{}\" cannot do that on its device; it can {}. Set "
       "zero_optimization.offload_optimizer.device to \"cpu\" (with all of it: ratio 1), or take "
       "one of these or a newer plugin",
       what, device.name(), can);
}

void require_format(const device::Device& device, const char* state, uint64_t bits, Format format) {
  if (Abilities::has(bits, format)) return;
  refuse(device,
         format_text("outrigger.states.{}.format = \"{}\"", state, kernels::name_of(format)),
         "keep it in " + format_names(bits));
}

}  // namespace

void require_able(const device::Device& device, const config::EngineConfig& config) {
  const config::OptimizerConfig& optimizer = config.optimizer;
  const bool none_kept = config.offload_optimizer && config.offload_ratio == 1;
  if (none_kept || optimizer.host) return;
  const Abilities able = device.abilities();
  const auto require_rule = [&](kernels::Rule rule) {
    if (Abilities::has(able.rules, rule)) return;
    refuse(device, format_text("optimizer.type = \"{}\"", optimizer.type),
           "update by " + names(able.rules, static_cast<uint32_t>(kRules.size()),
                                [](uint32_t i) { return std::string(kRules.at(i)); }));
  };
  require_rule(optimizer.rule);
  if (optimizer.rule == kernels::Rule::muon) {  // its directions, and its other parameters
    require_rule(kernels::Rule::sgd);
    require_rule(kernels::Rule::adam);
  }
  require_format(device, "master", able.weight_formats, optimizer.master.format);
  const auto require_moment = [&](bool kept, const char* state, const config::StateFormat& moment) {
    if (kept) require_format(device, state, able.moment_formats, moment.format);
  };
  require_moment(optimizer.keeps_exp_avg(), "exp_avg", optimizer.exp_avg);
  require_moment(optimizer.keeps_exp_avg_sq(), "exp_avg_sq", optimizer.exp_avg_sq);
  for (const auto& [state, format] :
       {std::pair("master", optimizer.master), std::pair("exp_avg", optimizer.exp_avg),
        std::pair("exp_avg_sq", optimizer.exp_avg_sq)}) {
    if (Abilities::has(able.roundings, format.rounding)) continue;
    const bool stochastic = format.rounding == kernels::Rounding::stochastic;
    refuse(device,
           format_text("outrigger.states.{}.rounding = \"{}\"", state,
                       stochastic ? "stochastic" : "nearest"),
           format_text("round it {}", stochastic ? "to nearest" : "stochastically"));
  }
}

}  // namespace outrigger::engine

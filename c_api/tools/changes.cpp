// SPDX-License-Identifier: Apache-2.0
#include "changes.h"

#include <algorithm>

#include "fault.h"
#include "text.h"

namespace outrigger::tools {
namespace {

// Patches: the first that is legal beside the rest of the configuration.
struct Way {
  std::string name;
  std::vector<Json> patches;
};

// Rounding to nearest loses small updates of the weights, and a second moment that is so rounded
// never shrinks; where the configuration chooses the rounding itself, that stays.
Json stochastic(const Json& config, const std::vector<const char*>& states) {
  Json patch = Json::object();
  for (const char* state : states) {
    const Json::json_pointer place(format_text("/outrigger/states/{}/rounding", state));
    if (!config.contains(place) || config[place].is_null()) patch[place] = "stochastic";
  }
  return patch;
}

// Those of one stage that change the precision.
void add_precisions(std::vector<Way>& all, const Json& config, const Json& zero,
                    const std::string& stage, const char* offload) {
  all.push_back(
      {stage + ", bf16" + offload,
       {{{"zero_optimization", zero}, {"fp16", nullptr}, {"bf16", {{"enabled", true}}}}}});
  const Json low = {
      {"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
  Way smallest{stage + ", bf16 with bf16 master and states" + offload, {}};
  // Some update rules keep no second moment.
  for (const std::vector<const char*>& states : {std::vector{"master", "exp_avg_sq"}, {"master"}}) {
    Json patch = {{"zero_optimization", zero}, {"fp16", nullptr}, {"bf16", low}};
    patch.update(stochastic(config, states));
    smallest.patches.push_back(std::move(patch));
  }
  all.push_back(std::move(smallest));
}

// What may go from a device to the host, which changes no bits.
struct May {
  bool offload, offload_parameters;  // the latter with the states
  int64_t live;                      // elements that the device shall have of them at least
};

std::vector<Way> ways(const Json& config, int64_t stage, const May& may) {
  std::vector<Way> all;
  const auto name_of = [](int64_t s) { return format_text("stage {}", s); };
  const auto offloaded = [&](int64_t s) {
    Json offload = {{"device", "cpu"}};
    if (config.contains("/zero_optimization/offload_optimizer/ratio"_json_pointer)) {
      offload["ratio"] = 1;
    }
    return Json{{"stage", s}, {"offload_optimizer", std::move(offload)}};
  };
  for (int64_t s = stage + 1; s <= 3; ++s) {
    all.push_back({name_of(s), {{{"zero_optimization", {{"stage", s}}}}}});
  }
  const int64_t first = std::max<int64_t>(1, stage);
  for (int64_t s = first; s <= 3 && may.offload; ++s) {
    all.push_back({name_of(s) + ", offload", {{{"zero_optimization", offloaded(s)}}}});
  }
  Json with_parameters = offloaded(3);
  with_parameters["offload_param"] = {{"device", "cpu"}};
  with_parameters["stage3_max_live_parameters"] = may.live;
  constexpr const char* kWithParameters = ", offload all";
  if (may.offload_parameters) {
    all.push_back({name_of(3) + kWithParameters, {{{"zero_optimization", with_parameters}}}});
  }
  for (int64_t s = first; s <= 3; ++s) {
    add_precisions(all, config, {{"stage", s}}, name_of(s), "");
    if (may.offload) add_precisions(all, config, offloaded(s), name_of(s), ", offload");
  }
  if (may.offload_parameters) {
    add_precisions(all, config, with_parameters, name_of(3), kWithParameters);
  }
  return all;
}

}  // namespace

std::vector<Change> changes_of(const Json& config, const std::vector<NamedShape>& shapes,
                               const Setting& setting, const Model& given) {
  std::vector<Change> changes;
  std::vector<Bytes> known{given.needed()};
  const May may{setting.on_device && !given.offloads(),
                setting.on_device && !given.offloads_parameters(), given.acquired()};
  for (const Way& way : ways(config, given.stage(), may)) {
    for (const Json& patch : way.patches) {
      Json changed = config;
      changed.merge_patch(patch);
      try {
        const Bytes needed = Model(changed.dump(), shapes, setting).needed();
        const auto is_no_more = [&](const Bytes& before) { return before.fit_in(needed); };
        if (std::ranges::none_of(known, is_no_more)) {
          known.push_back(needed);
          changes.push_back({way.name, patch, std::move(changed), needed});
        }
        break;
      } catch (const Fault&) {  // not legal beside the rest of the configuration
      }
    }
  }
  return changes;
}

}  // namespace outrigger::tools

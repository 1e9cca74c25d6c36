// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>

#include "command.h"
#include "fault.h"
#include "text.h"

namespace outrigger::tools {

Model::Model(const std::string& config, const std::vector<NamedShape>& shapes,
             const Placement& placement, const Start& start)
    : placement_(placement), start_(start) {
  const Json effective = Json::parse(effective_config(config, placement.world));
  stage_ = effective["zero_optimization"]["stage"]["value"].get<int64_t>();

  otr_context* context = nullptr;
  check(otr_context_create(nullptr, &context));
  context_.reset(context);
  otr_comm* comm = nullptr;
  check(otr_comm_create_self(context, &comm));
  comm_.reset(comm);
  otr_engine* engine = nullptr;
  check(otr_engine_create(comm, config_of_one_rank(config, placement.world).c_str(), &engine));
  engine_.reset(engine);
  for (const NamedShape& parameter : shapes) {
    std::vector<int64_t> shape = parameter.shape;
    otr_tensor tensor;
    int64_t id = 0;
    check(otr_tensor_init(nullptr, "float32", static_cast<int32_t>(shape.size()), shape.data(),
                          &tensor));
    check(otr_engine_add_parameter(engine, parameter.name.c_str(), &tensor, nullptr, &id));
  }
}

otr_estimate_options Model::options() const {
  otr_estimate_options options;
  check(otr_estimate_options_init(&options, sizeof options));
  options.world_size = placement_.world;
  options.separate_memory = placement_.hosts > 1 ? 1 : 0;  // over a communicator of the caller's
  return options;
}

std::vector<otr_memory_entry> Model::estimate(otr_estimate_options options) const {
  size_t count = 0;
  check(otr_engine_estimate(engine_.get(), &options, nullptr, &count));
  std::vector<otr_memory_entry> entries(count);
  entries[0].struct_size = sizeof entries[0];
  check(otr_engine_estimate(engine_.get(), &options, entries.data(), &count));
  return entries;
}

std::vector<otr_memory_entry> Model::estimate(int32_t layout) const {
  otr_estimate_options wanted = options();
  wanted.layout = layout;
  return estimate(wanted);
}

namespace {

// The first rank of a host, and others with so much each.
int64_t host_of(int64_t first, int64_t other, int ranks) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(other, int64_t{ranks} - 1, &bytes) ||
      __builtin_add_overflow(bytes, first, &bytes)) {
    fail(OTR_E_ARGUMENT,
         "{} ranks of {} bytes each need more than 2^63 bytes of a host: place fewer ranks on one "
         "with --hosts",
         ranks, other);
  }
  return bytes;
}

}  // namespace

Model::Peaks Model::start_peaks(int32_t way) const {
  otr_estimate_options wanted = options();
  wanted.start = way;
  wanted.initial_element_bytes = start_.element_bytes;
  const int64_t first = estimate(wanted).back().peak_bytes;
  if (way == OTR_START_GIVEN && placement_.world > 1) wanted.rank = 1;  // which holds no values
  return {first, host_of(first, estimate(wanted).back().peak_bytes, placement_.ranks_per_host)};
}

int64_t Model::host_bytes() const {
  const int64_t of_rank = estimate(OTR_LAYOUT_OUTRIGGER).back().peak_bytes;
  return std::max(host_of(of_rank, of_rank, placement_.ranks_per_host),
                  start_peaks(start_.way).host);
}

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

std::vector<Way> ways(const Json& config, int64_t stage) {
  std::vector<Way> all;
  for (int64_t s = stage + 1; s <= 3; ++s) {
    all.push_back({format_text("stage {}", s), {{{"zero_optimization", {{"stage", s}}}}}});
  }
  const Json low = {
      {"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
  for (int64_t s = std::max<int64_t>(1, stage); s <= 3; ++s) {
    const Json zero = {{"stage", s}};
    all.push_back(
        {format_text("stage {}, bf16", s),
         {{{"zero_optimization", zero}, {"fp16", nullptr}, {"bf16", {{"enabled", true}}}}}});
    Way smallest{format_text("stage {}, bf16 with bf16 master and states", s), {}};
    // Some update rules keep no second moment.
    for (const std::vector<const char*>& states :
         {std::vector{"master", "exp_avg_sq"}, {"master"}}) {
      Json patch = {{"zero_optimization", zero}, {"fp16", nullptr}, {"bf16", low}};
      patch.update(stochastic(config, states));
      smallest.patches.push_back(std::move(patch));
    }
    all.push_back(std::move(smallest));
  }
  return all;
}

}  // namespace

std::vector<Change> changes_that_fit(const Json& config, const std::vector<NamedShape>& shapes,
                                     const Placement& placement, const Start& start,
                                     const Model& given, int64_t available) {
  std::vector<Change> fitting;
  const int64_t needed = given.host_bytes();
  for (const Way& way : ways(config, given.stage())) {
    for (const Json& patch : way.patches) {
      Json changed = config;
      changed.merge_patch(patch);
      try {
        const int64_t bytes = Model(changed.dump(), shapes, placement, start).host_bytes();
        if (bytes <= available && bytes < needed) {
          fitting.push_back({way.name, patch, std::move(changed), bytes});
        }
        break;
      } catch (const Fault&) {  // not legal beside the rest of the configuration
      }
    }
  }
  return fitting;
}

}  // namespace outrigger::tools

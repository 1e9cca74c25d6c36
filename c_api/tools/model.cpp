// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>

#include "config_command.h"
#include "fault.h"
#include "text.h"

namespace outrigger::tools {

Model::Model(const std::string& config, const std::vector<NamedShape>& shapes,
             const Placement& placement)
    : placement_(placement) {
  // The engine below has one rank: a batch size for all ranks is checked here, and left out there.
  const Json effective = Json::parse(effective_config(config, placement.world));
  Json alone = Json::parse(config);
  alone.erase("train_batch_size");
  alone["gradient_accumulation_steps"] = effective["gradient_accumulation_steps"]["value"];
  stage_ = effective["zero_optimization"]["stage"]["value"].get<int64_t>();

  otr_context* context = nullptr;
  check(otr_context_create(nullptr, &context));
  context_.reset(context);
  otr_comm* comm = nullptr;
  check(otr_comm_create_self(context, &comm));
  comm_.reset(comm);
  otr_engine* engine = nullptr;
  check(otr_engine_create(comm, alone.dump().c_str(), &engine));
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

std::vector<otr_memory_entry> Model::estimate(int32_t layout) const {
  otr_estimate_options options;
  check(otr_estimate_options_init(&options, sizeof options));
  options.world_size = placement_.world;
  options.layout = layout;
  options.separate_memory = placement_.hosts > 1 ? 1 : 0;  // over a communicator of the caller's
  size_t count = 0;
  check(otr_engine_estimate(engine_.get(), &options, nullptr, &count));
  std::vector<otr_memory_entry> entries(count);
  entries[0].struct_size = sizeof entries[0];
  check(otr_engine_estimate(engine_.get(), &options, entries.data(), &count));
  return entries;
}

int64_t Model::host_bytes() const {
  const int64_t of_rank = estimate(OTR_LAYOUT_OUTRIGGER).back().peak_bytes;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(of_rank, int64_t{placement_.ranks_per_host}, &bytes)) {
    fail(OTR_E_ARGUMENT,
         "{} ranks of {} bytes each need more than 2^63 bytes of a host: place fewer ranks on one "
         "with --hosts",
         placement_.ranks_per_host, of_rank);
  }
  return bytes;
}

namespace {

struct Way {
  std::string name;
  Json patch;
};

std::vector<Way> ways(int64_t stage) {
  std::vector<Way> all;
  for (int64_t s = stage + 1; s <= 3; ++s) {
    all.push_back({format_text("stage {}", s), {{"zero_optimization", {{"stage", s}}}}});
  }
  const Json low = {
      {"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
  for (int64_t s = std::max<int64_t>(1, stage); s <= 3; ++s) {
    const Json zero = {{"stage", s}};
    all.push_back(
        {format_text("stage {}, bf16", s),
         {{"zero_optimization", zero}, {"fp16", nullptr}, {"bf16", {{"enabled", true}}}}});
    all.push_back({format_text("stage {}, bf16 with bf16 master and states", s),
                   {{"zero_optimization", zero}, {"fp16", nullptr}, {"bf16", low}}});
  }
  return all;
}

}  // namespace

std::vector<Change> changes_that_fit(const Json& config, const std::vector<NamedShape>& shapes,
                                     const Placement& placement, const Model& given,
                                     int64_t available) {
  std::vector<Change> fitting;
  const int64_t needed = given.host_bytes();
  for (const Way& way : ways(given.stage())) {
    Json changed = config;
    changed.merge_patch(way.patch);
    try {
      const int64_t bytes = Model(changed.dump(), shapes, placement).host_bytes();
      if (bytes > available || bytes >= needed) continue;
      fitting.push_back({way.name, way.patch, std::move(changed), bytes});
    } catch (const Fault&) {  // not legal beside the rest of the configuration
    }
  }
  return fitting;
}

}  // namespace outrigger::tools

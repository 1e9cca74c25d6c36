// SPDX-License-Identifier: Apache-2.0
// What an engine says of itself: counts, names, hyperparameters, configuration, memory, estimate.
#include <string_view>

#include "core/base/text.h"
#include "tests/fuzz/api/calls.h"

namespace otr_fuzz {
namespace {

void counts(Rank& rank, Bytes& bytes) {
  const EnginePlace& place = rank.engines.pick(bytes);
  Out<int64_t> parameters(bytes), passes(bytes);
  if (CALL(rank, otr_engine_parameter_count, place.handle, parameters) == OTR_OK &&
      parameters.value != static_cast<int64_t>(place.model->parameters.size())) {
    broken(outrigger::format_text("{} parameters of {}", parameters.value,
                                  place.model->parameters.size()));
  }
  if (CALL(rank, otr_engine_live_children, place.handle, passes) == OTR_OK &&
      passes.value != place.model->passes) {
    broken(outrigger::format_text("{} passes alive of {}", passes.value, place.model->passes));
  }
}

void names(Rank& rank, Bytes& bytes) {
  const EnginePlace& place = rank.engines.pick(bytes);
  const DrawnParameter drawn = draw_parameter(bytes, *place.model);
  Out<const char*> name(bytes);
  Out<int64_t> id(bytes);
  Out<int32_t> ndim(bytes);
  Out<const int64_t*> shape(bytes);
  CALL(rank, otr_engine_parameter_shape, place.handle, drawn.id, ndim, shape);
  const char* asked = bytes.one_in(16) ? (bytes.one_in(2) ? nullptr : "p1x") : "p0";
  CALL(rank, otr_engine_parameter_id, place.handle, asked, id);
  if (CALL(rank, otr_engine_parameter_name, place.handle, drawn.id, name) != OTR_OK) return;
  Out<int64_t> back;
  if (CALL(rank, otr_engine_parameter_id, place.handle, name.value, back) != OTR_OK ||
      back.value != drawn.id) {
    broken(outrigger::format_text("parameter {} is not found by its name", drawn.id));
  }
}

void group_values(Rank& rank, Bytes& bytes) {
  constexpr const char* kNames[] = {"lr", "weight_decay", "eps", "beta1", "beta2", "momentum"};
  constexpr const char* kGroups[] = {nullptr, "default", "other", "none such"};
  constexpr double kValues[] = {0, 0.5, 0.999, 1, -1, 1e-300, 1e300};
  otr_engine* engine = rank.engines.pick(bytes).handle;
  const char* name = bytes.one_in(32) ? nullptr : bytes.pick(kNames);
  const char* group = bytes.pick(kGroups);
  const double value = bytes.pick(kValues);
  Out<double> before, after(bytes);
  const int32_t had = CALL(rank, otr_engine_get_group_value, engine, group, name, before);
  const int32_t set = CALL(rank, otr_engine_set_group_value, engine, group, name, value);
  const int32_t got = CALL(rank, otr_engine_get_group_value, engine, group, name, after);
  if (after.null || had != OTR_OK || got != OTR_OK) return;
  // NULL sets all groups, and may fail for another one than the default that get reads.
  const double expected = set == OTR_OK ? value : before.value;
  if (after.value != expected) {
    broken(outrigger::format_text("{} is {} after it was to become {}", name, after.value, value));
  }
}

void configuration(Rank& rank, Bytes& bytes) {
  otr_engine* engine = rank.engines.pick(bytes).handle;
  size_t size = 0;
  if (CALL(rank, otr_engine_config, engine, nullptr, &size) != OTR_OK) return;
  std::vector<char> buffer(bytes.one_in(4) ? size - 1 : size);
  size_t given = buffer.size();
  CALL(rank, otr_engine_config, engine, buffer.data(), &given);
  if (given != size) broken("the configuration's size changes");
}

void memory(Rank& rank, Bytes& bytes) {
  otr_engine* engine = rank.engines.pick(bytes).handle;
  size_t count = bytes.one_in(8) ? bytes.below(4) : 64;
  std::vector<otr_memory_entry> entries(64);
  entries[0].struct_size = bytes.one_in(16) ? 3 : sizeof entries[0];
  const bool null = bytes.one_in(16);
  if (CALL(rank, otr_engine_memory, engine, null ? nullptr : entries.data(), &count) != OTR_OK ||
      null) {
    return;
  }
  for (size_t i = 0; i < count && i < entries.size(); ++i) {
    // The total's peak counts private blocks as they are touched.
    const bool total = std::string_view(entries[i].purpose) == "total";
    if (entries[i].resident_bytes < 0 || entries[i].peak_bytes < 0 ||
        (!total && entries[i].peak_bytes < entries[i].resident_bytes)) {
      broken(outrigger::format_text("ledger: {} has {} bytes, peak {}", entries[i].purpose,
                                    entries[i].resident_bytes, entries[i].peak_bytes));
    }
  }
}

void estimate(Rank& rank, Bytes& bytes) {
  otr_estimate_options options;
  CALL(rank, otr_estimate_options_init, &options, sizeof options);
  options.world_size = 1 + static_cast<int32_t>(bytes.below(8));
  options.rank = static_cast<int32_t>(bytes.below(8)) - (bytes.one_in(8) ? 1 : 0);
  options.layout = static_cast<int32_t>(bytes.below(8) % 3);
  options.separate_memory = static_cast<int32_t>(bytes.below(2));
  options.grads_at_once = static_cast<int32_t>(bytes.below(2));
  constexpr int64_t kElements[] = {0, 1, 1000, -1, INT64_MAX};
  if (bytes.one_in(4)) options.acquired_elements = bytes.pick(kElements);
  if (bytes.one_in(4)) options.widened_elements = bytes.pick(kElements);
  if (bytes.one_in(4)) options.output_elements = bytes.pick(kElements);
  if (bytes.one_in(2)) options.start = static_cast<int32_t>(bytes.below(6)) - 1;
  options.on_device = static_cast<int32_t>(bytes.below(8) % 3);
  if (bytes.one_in(4)) options.initial_element_bytes = static_cast<int32_t>(bytes.below(10));
  size_t count = 64;
  std::vector<otr_memory_entry> entries(count);
  entries[0].struct_size = sizeof entries[0];
  CALL(rank, otr_engine_estimate, rank.engines.pick(bytes).handle,
       bytes.one_in(8) ? nullptr : &options, entries.data(), &count);
}

constexpr Call kCalls[] = {{"engine counts", Scope::local, 2, counts},
                           {"engine names", Scope::local, 1, names},
                           {"engine group values", Scope::local, 2, group_values},
                           {"engine configuration", Scope::local, 1, configuration},
                           {"engine memory", Scope::local, 2, memory},
                           {"engine estimate", Scope::local, 2, estimate}};

}  // namespace

std::span<const Call> query_calls() { return kCalls; }

}  // namespace otr_fuzz

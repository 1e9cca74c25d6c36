// SPDX-License-Identifier: Apache-2.0
#include "core/engine/engine.h"

#include <array>
#include <vector>

#include "c_api/src/handles.h"
#include "outrigger.h"

using namespace outrigger;  // NOLINT(google-build-using-namespace): the boundary names both worlds
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

namespace {

otr_param_options param_defaults() {
  otr_param_options o{};
  o.struct_size = sizeof o;
  o.trainable = 1;
  o.alias_of = -1;
  o.contributions = 1;
  return o;
}

engine::Engine& engine_of(otr_engine* handle) { return *get(handle, "engine"); }
const engine::Engine& engine_of(const otr_engine* handle) { return *get(handle, "engine"); }

engine::ParameterOptions options_of(const otr_param_options& o) {
  if (o.trainable != 0 && o.trainable != 1) {
    fail(OTR_E_ARGUMENT, "trainable = {}; legal is 1, or 0 for frozen", o.trainable);
  }
  if (o.contributions < 1)
    fail(OTR_E_ARGUMENT, "contributions = {}; legal is 1 or more", o.contributions);
  if (o.alias_of < -1)
    fail(OTR_E_ARGUMENT, "alias_of = {}; legal is an id, or -1 for none", o.alias_of);
  if (o.replicated != 0) {
    fail(OTR_E_UNSUPPORTED,
         "replicated = {}: tensor-parallel replicas are not built yet; it must be 0", o.replicated);
  }
  if (o.held_bytes < 0 || o.held_bytes > layout::kMostElements) {
    fail(OTR_E_ARGUMENT, "held_bytes = {}; legal is 0 to 2^56", o.held_bytes);
  }
  return {o.trainable != 0, o.alias_of, o.group == nullptr ? "default" : o.group, o.contributions,
          o.held_bytes};
}

otr_offload_options offload_defaults() {
  otr_offload_options o{};
  o.struct_size = sizeof o;
  o.page_lock = 1;
  return o;
}

otr_watch_options watch_defaults() {
  otr_watch_options o{};
  o.struct_size = sizeof o;
  return o;
}

otr_estimate_options estimate_defaults() {
  otr_estimate_options o{};
  o.struct_size = sizeof o;
  o.world_size = 1;
  o.initial_element_bytes = 4;
  return o;
}

void write_entries(const engine::MemoryEntries& memory, const otr_device& device,
                   otr_memory_entry* entries, size_t* inout_count) {
  const bool on_host = device.device_type == OTR_DEVICE_CPU;
  const size_t needed = memory.host.size() * (on_host ? 1 : 2);
  size_t& count = required(inout_count, "inout_count");
  const size_t given = count;
  count = needed;
  if (entries == nullptr && given == 0) return;
  required(entries, "entries");
  if (given < needed) {
    fail(OTR_E_BUFFER_SIZE, "there is room for {} entries, {} are needed", given, needed);
  }
  OutputArray<otr_memory_entry> out(entries, needed, "entries[0]", false);
  for (size_t i = 0; i < needed; ++i) {
    const size_t purpose = i % memory.host.size();
    const bool host = i < memory.host.size();
    const memory::Entry& entry = (host ? memory.host : memory.device).at(purpose);
    otr_memory_entry filled{};
    filled.device_type = host ? OTR_DEVICE_CPU : device.device_type;
    filled.purpose = memory::name_of(static_cast<memory::Purpose>(purpose));
    filled.resident_bytes = entry.resident;
    filled.peak_bytes = entry.peak;
    out.write(i, filled);
  }
}

}  // namespace

int32_t otr_param_options_init(otr_param_options* options, size_t size) noexcept {
  return init_struct(options, size, param_defaults(), "options");
}

int32_t otr_engine_create(otr_comm* comm, const char* config_json,
                          otr_engine** out_engine) noexcept {
  return guard([&] {
    required(out_engine, "out_engine") = nullptr;
    const auto& kept = get(comm, "comm");
    *out_engine = new otr_engine(std::make_shared<engine::Engine>(
        kept->context, kept->communicator, config_json == nullptr ? "" : config_json));
  });
}

int32_t otr_engine_set_device(otr_engine* engine, int32_t device_type, int32_t device_id) noexcept {
  return guard([&] { engine_of(engine).set_device({device_type, device_id}); });
}

int32_t otr_engine_add_parameter(otr_engine* engine, const char* name, const otr_tensor* initial,
                                 const otr_param_options* options, int64_t* out_id) noexcept {
  return guard([&] {
    required(out_id, "out_id") = 0;
    engine::Engine& e = engine_of(engine);
    const auto read = options_of(read_struct(options, param_defaults(), "options"));
    required(name, "name");
    if (initial == nullptr && read.alias_of >= 0) {
      const auto& shape = e.model().at(read.alias_of).shape;
      *out_id = e.add_parameter(name, tensor::make(nullptr, kernels::Format::float32, shape), read);
      return;
    }
    *out_id = e.add_parameter(name, required(initial, "initial"), read);
  });
}

int32_t otr_engine_commit(otr_engine* engine) noexcept {
  return waiting(engine, [](engine::Engine& e) { e.commit(); });
}

int32_t otr_engine_finalize(otr_engine* engine) noexcept {
  return waiting(engine, [](engine::Engine& e) { e.finalize(); });
}

int32_t otr_engine_abort(otr_engine* engine, const char* reason) noexcept {
  return guard([&] { engine_of(engine).abort(reason == nullptr ? "no reason given" : reason); });
}

int32_t otr_engine_check(otr_engine* engine) noexcept {
  return guard([&] { engine_of(engine).check(); });
}

void otr_engine_destroy(otr_engine* engine) noexcept {
  const KeptErrorText kept;
  if (is_ours(engine)) engine->object->leave();
  destroy(engine);
}

int32_t otr_engine_live_children(const otr_engine* engine, int64_t* out_count) noexcept {
  return guard([&] {
    required(out_count, "out_count") = 0;
    *out_count = engine_of(engine).live_passes();
  });
}

int32_t otr_engine_step(otr_engine* engine, otr_step_report* report) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    fill_output(report, "report", [&](otr_step_report& full) { e.step(full, report != nullptr); });
    e.deliver_records();
    e.require_scalable();
  });
}

int32_t otr_engine_step_begin(otr_engine* engine) noexcept {
  return guard([&] { engine_of(engine).begin_step(); });
}

int32_t otr_engine_report(otr_engine* engine, double timeout_seconds,
                          otr_step_report* report) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    required(report, "report");
    bool over = false;
    fill_output(report, "report",
                [&](otr_step_report& full) { over = e.report(timeout_seconds, full); });
    if (!over) return;
    e.deliver_records();
    e.require_scalable();
  });
}

int32_t otr_engine_reduce(otr_engine* engine, otr_step_report* report) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    fill_output(report, "report", [&](otr_step_report& full) { e.reduce(full); });
  });
}

int32_t otr_engine_has_grad(const otr_engine* engine, int64_t id, int32_t* out_has_grad) noexcept {
  return guard([&] {
    required(out_has_grad, "out_has_grad") = 0;
    *out_has_grad = engine_of(engine).has_grad(id) ? 1 : 0;
  });
}

int32_t otr_engine_discard(otr_engine* engine) noexcept {
  return waiting(engine, [&](engine::Engine& e) { e.discard(); });
}

int32_t otr_step_many(otr_engine* const* engines, int64_t count, otr_comm* joint,
                      otr_step_report* reports) noexcept {
  return guard([&] {
    required_count(count, engines, "engines");
    std::vector<engine::Engine*> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(&engine_of(engines[i]));
    OutputArray<otr_step_report> out(reports, list.size(), "report", true);
    comm::Communicator* group =
        joint == nullptr ? nullptr : get(joint, "joint")->communicator.get();
    if (list.empty() && group == nullptr) {
      fail(OTR_E_ARGUMENT, "count is 0 without a joint group: there is nothing to step");
    }
    std::vector<otr_step_report> full(list.size());
    const Interruptible scope(list.empty() ? *get(joint, "joint")->context : list[0]->context());
    engine::Engine::step_many(list, group, full);
    for (size_t i = 0; i < full.size(); ++i) out.write(i, full[i]);
    for (engine::Engine* e : list) e->deliver_records();
    for (engine::Engine* e : list) e->require_scalable();
  });
}

int32_t otr_engine_set_boundary(otr_engine* engine, int32_t boundary) noexcept {
  return guard([&] { engine_of(engine).set_boundary(boundary); });
}

int32_t otr_engine_get_boundary(const otr_engine* engine, int32_t* out_is_boundary) noexcept {
  return guard([&] {
    required(out_is_boundary, "out_is_boundary") = 0;
    const engine::Engine& e = engine_of(engine);
    e.require_not_pending("otr_engine_get_boundary");
    *out_is_boundary = e.at_boundary() ? 1 : 0;
  });
}

int32_t otr_engine_get_loss_scale(const otr_engine* engine, double* out_scale) noexcept {
  return guard([&] {
    required(out_scale, "out_scale") = 0;
    const engine::Engine& e = engine_of(engine);
    e.require_not_pending("otr_engine_get_loss_scale");
    *out_scale = e.loss_scale();
  });
}

int32_t otr_engine_set_group_value(otr_engine* engine, const char* group, const char* name,
                                   double value) noexcept {
  return guard([&] {
    engine_of(engine).set_group_value(group == nullptr ? "" : group, &required(name, "name"),
                                      value);
  });
}

int32_t otr_engine_get_group_value(const otr_engine* engine, const char* group, const char* name,
                                   double* out_value) noexcept {
  return guard([&] {
    required(out_value, "out_value") = 0;
    engine::Engine& e = *get(engine, "engine");
    *out_value = e.group_value(group == nullptr ? "" : group, &required(name, "name"));
  });
}

int32_t otr_engine_config(const otr_engine* engine, char* buffer, size_t* inout_size) noexcept {
  return guard([&] { write_text(engine_of(engine).config().effective_json, buffer, inout_size); });
}

int32_t otr_engine_get_progress(const otr_engine* engine, char* buffer,
                                size_t* inout_size) noexcept {
  return guard([&] {
    engine::Engine& e = *get(engine, "engine");
    required(inout_size, "inout_size");
    write_text(engine::to_json(e.progress()), buffer, inout_size);
  });
}

int32_t otr_engine_set_progress(otr_engine* engine, const char* progress_json) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    e.set_progress(&required(progress_json, "progress_json"));
  });
}

int32_t otr_watch_options_init(otr_watch_options* options, size_t size) noexcept {
  return init_struct(options, size, watch_defaults(), "options");
}

int32_t otr_engine_watch(otr_engine* engine, const otr_watch_options* options) noexcept {
  return guard([&] {
    const otr_watch_options o = read_struct(options, watch_defaults(), "options");
    const auto text = [](const char* given) { return std::string(given == nullptr ? "" : given); };
    engine_of(engine).watch(
        {text(o.name), text(o.records), text(o.trace), o.callback, o.user_data});
  });
}

int32_t otr_engine_note(otr_engine* engine, const char* name, double value) noexcept {
  return guard([&] { engine_of(engine).note(&required(name, "name"), value); });
}

int32_t otr_engine_get_record(const otr_engine* engine, char* buffer, size_t* inout_size) noexcept {
  return guard([&] {
    const engine::Engine& e = engine_of(engine);
    required(inout_size, "inout_size");
    write_text(e.last_record(), buffer, inout_size);
  });
}

int32_t otr_config_check(const char* config_json, int32_t world_size, char* buffer,
                         size_t* inout_size) noexcept {
  return guard([&] {
    if (world_size < 1) fail(OTR_E_ARGUMENT, "world_size = {}; legal is 1 or more", world_size);
    const auto config = config::parse_engine(config_json == nullptr ? "" : config_json, world_size);
    write_text(config.effective_json, buffer, inout_size);
  });
}

int32_t otr_engine_memory(const otr_engine* engine, otr_memory_entry* entries,
                          size_t* inout_count) noexcept {
  return guard([&] {
    const engine::Engine& e = engine_of(engine);
    const memory::Ledger& ledger = e.ledger();
    write_entries({ledger.entries(memory::Space::host), ledger.entries(memory::Space::device)},
                  e.device(), entries, inout_count);
  });
}

int32_t otr_engine_host_memory(const otr_engine* engine, char* buffer,
                               size_t* inout_size) noexcept {
  return guard([&] {
    const engine::Engine& e = engine_of(engine);
    required(inout_size, "inout_size");
    write_text(e.host_memory(), buffer, inout_size);
  });
}

int32_t otr_offload_options_init(otr_offload_options* options, size_t size) noexcept {
  return init_struct(options, size, offload_defaults(), "options");
}

int32_t otr_engine_offload_states(otr_engine* engine, const otr_offload_options* options) noexcept {
  return waiting(engine, [&](engine::Engine& e) {
    const otr_offload_options read = read_struct(options, offload_defaults(), "options");
    if (read.states < 0 || read.states > engine::kAllOfIt) {
      fail(OTR_E_ARGUMENT,
           "states = {}; legal is a sum of OTR_STATES_PUBLISHED (1), OTR_STATES_MASTER (2), "
           "OTR_STATES_MOMENTS (4) and OTR_STATES_GRADIENTS (8), or 0 for all",
           read.states);
    }
    if (read.page_lock != 0 && read.page_lock != 1) {
      fail(OTR_E_ARGUMENT, "page_lock = {}; legal is 0 or 1", read.page_lock);
    }
    e.offload_states(read.states == 0 ? engine::kAllOfIt : read.states, read.page_lock == 1);
  });
}

int32_t otr_engine_reload_states(otr_engine* engine) noexcept {
  return waiting(engine, [&](engine::Engine& e) { e.reload_states(); });
}

int32_t otr_estimate_options_init(otr_estimate_options* options, size_t size) noexcept {
  return init_struct(options, size, estimate_defaults(), "options");
}

int32_t otr_engine_estimate(const otr_engine* engine, const otr_estimate_options* options,
                            otr_memory_entry* entries, size_t* inout_count) noexcept {
  return guard([&] {
    const engine::Engine& e = engine_of(engine);
    const auto o = read_struct(options, estimate_defaults(), "options");
    require_rank("options have", o.rank, o.world_size);
    if (o.layout != OTR_LAYOUT_OUTRIGGER && o.layout != OTR_LAYOUT_DEEPSPEED) {
      fail(OTR_E_ARGUMENT,
           "layout = {}; legal is OTR_LAYOUT_OUTRIGGER ({}) or OTR_LAYOUT_DEEPSPEED ({})", o.layout,
           static_cast<int>(OTR_LAYOUT_OUTRIGGER), static_cast<int>(OTR_LAYOUT_DEEPSPEED));
    }
    for (const int64_t elements : {o.acquired_elements, o.widened_elements, o.output_elements}) {
      if (elements >= 0 && elements <= layout::kMostElements) continue;
      fail(OTR_E_ARGUMENT,
           "options have {} acquired, {} widened and {} output elements; legal is 0 to 2^56",
           o.acquired_elements, o.widened_elements, o.output_elements);
    }
    if (o.start < OTR_START_NONE || o.start > OTR_START_SHARED_OUT) {
      fail(OTR_E_ARGUMENT, "start = {}; legal is OTR_START_NONE ({}) to OTR_START_SHARED_OUT ({})",
           o.start, static_cast<int>(OTR_START_NONE), static_cast<int>(OTR_START_SHARED_OUT));
    }
    if (o.start != OTR_START_NONE && o.layout == OTR_LAYOUT_DEEPSPEED) {
      fail(OTR_E_ARGUMENT,
           "start = {} with OTR_LAYOUT_DEEPSPEED, whose formula knows no start: leave it "
           "OTR_START_NONE",
           o.start);
    }
    if (o.initial_element_bytes < 1 || o.initial_element_bytes > 8) {
      fail(OTR_E_ARGUMENT, "initial_element_bytes = {}; legal is 1 to 8", o.initial_element_bytes);
    }
    const int32_t hosts = std::max(1, o.hosts);  // 0: from a header that had none
    if (o.hosts < 0 || o.world_size % hosts != 0 || (hosts > 1 && o.separate_memory == 0)) {
      fail(OTR_E_ARGUMENT,
           "hosts = {} of world_size {}, separate_memory {}; legal is a divisor of the world size, "
           "and above 1 with separate_memory 1: ranks of several hosts share no memory",
           o.hosts, o.world_size, o.separate_memory);
    }
    if (o.on_device != 0 && o.on_device != 1) {
      fail(OTR_E_ARGUMENT,
           "on_device = {}; legal is 0 (where the engine is) or 1 (as if it were on a device)",
           o.on_device);
    }
    const auto lock = e.lock_model();
    otr_device device = e.device();
    if (o.on_device != 0 && device.device_type == OTR_DEVICE_CPU) {
      device = {OTR_DEVICE_EXTENSION, 0};
    }
    write_entries(
        e.estimate({o.world_size, o.rank, o.separate_memory == 0, o.layout == OTR_LAYOUT_DEEPSPEED,
                    o.acquired_elements, o.widened_elements, o.output_elements,
                    o.grads_at_once != 0, static_cast<engine::Estimate::Start>(o.start),
                    o.initial_element_bytes, hosts, o.on_device != 0}),
        device, entries, inout_count);
  });
}

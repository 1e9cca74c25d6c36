// SPDX-License-Identifier: Apache-2.0
#include "core/engine/declared.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/document.h"
#include "core/engine/abilities.h"
#include "core/engine/transfer.h"
#include "core/optimizer/schedule.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {
namespace {

using kernels::Format;

// XXH3_64bits over so many float32 zeros, which is what a parameter without a value begins with.
uint64_t hash_of_zeros(int64_t count) {
  static constexpr std::array<float, 1024> kZeros{};
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  for (int64_t left = count; left > 0;) {
    const int64_t n = std::min<int64_t>(left, kZeros.size());
    XXH3_64bits_update(state.get(), kZeros.data(), static_cast<size_t>(n) * sizeof(float));
    left -= n;
  }
  return XXH3_64bits_digest(state.get());
}

// The plugin that moves this device's memory between ranks.
device::CollectivePlugin collective_for(const device::Device& opened) {
  device::CollectivePlugin plugin = device::load_collective_plugin("nccl");
  if (plugin.table.device_type != opened.id().device_type) {
    fail(OTR_E_UNSUPPORTED,
         "outrigger.exchange.backend \"nccl\": {} moves memory of devices of type {}, and {} is of "
         "type {}: leave the backend at \"host\"",
         plugin.table.name, plugin.table.device_type, opened.name(), opened.id().device_type);
  }
  int32_t version = 0;
  if (const int32_t status = plugin.table.library_version(&version); status != OTR_OK) {
    fail(status, "outrigger.exchange.backend \"nccl\": {}", plugin.table.last_error());
  }
  return plugin;
}

}  // namespace

Declared::Declared(std::shared_ptr<Context> given_context, std::string_view json,
                   int32_t given_rank, int32_t given_world)
    : context(std::move(given_context)),
      config_json(json),
      rank(given_rank),
      world(given_world),
      config(config::parse_engine(json, given_world)),
      groups{config.optimizer} {
  for (const std::string& warning : config.warnings) context->log(OTR_LOG_WARNING, warning);
}

void Declared::set_device(const otr_device& wanted) {
  if (hyperparameters_set_) {
    fail(OTR_E_STATE,
         "otr_engine_set_device: a hyperparameter was set already; choose the device right after "
         "otr_engine_create");
  }
  if (model.size() > 0) {
    fail(OTR_E_STATE,
         "otr_engine_set_device: {} parameters are declared already; choose the device before the "
         "first",
         model.size());
  }
  const bool host = wanted.device_type == OTR_DEVICE_CPU;
  std::shared_ptr<device::Device> opened = host ? nullptr : context->devices().open(wanted);
  config::EngineConfig judged =
      config_on(host ? config::EngineKind::cpu : config::EngineKind::device);
  if (opened) require_able(*opened, judged);
  const bool direct = opened && world > 1 && judged.backend != config::Backend::host;
  collective = direct ? std::optional(collective_for(*opened)) : std::nullopt;
  config = std::move(judged);
  groups = {config.optimizer};
  device = std::move(opened);
}

int64_t Declared::add(const std::string& name, const otr_tensor& value,
                      const ParameterOptions& options) {
  if (name.empty())
    fail(OTR_E_ARGUMENT, "a parameter's name is empty: give each a name of its own");
  for (const std::string& text : {name, options.group}) {
    if (is_utf8(text)) continue;
    fail(OTR_E_ARGUMENT, "the name \"{}\" is not UTF-8, which a progress is written in",
         config::printable(text));
  }
  const tensor::View view = tensor::check(value, {"the value of", name}, false, device_id());
  layout::Parameter parameter;
  parameter.name = name;
  parameter.shape.assign(view.shape.begin(), view.shape.end());
  parameter.count = view.count;
  parameter.trainable = options.trainable;
  parameter.matrix = config.optimizer.is_matrix(name, view.shape.size()) && view.count > 0;
  parameter.declared = parameter.contributions = options.contributions;
  if (options.held_bytes > 0 && (options.alias_of >= 0 || view.data != nullptr)) {
    fail(
        OTR_E_ARGUMENT,
        "parameter \"{}\" has held_bytes = {} {}: it is for a value that otr_engine_set_initial is "
        "still to take; leave it 0",
        name, options.held_bytes,
        options.alias_of >= 0 ? "as an alias, which has no value of its own"
                              : "beside a value, which is copied now");
  }
  // Everything that can fail comes before the declaration: a failure declares nothing.
  Initial first;
  first.held = memory::Charge(ledger, memory::Purpose::initial, options.held_bytes,
                              view.on_host ? memory::Space::host : memory::Space::device);
  const bool compares = config.initial != config::Initial::rank0;
  const bool keeps = rank == 0 || config.initial == config::Initial::compare;
  if (options.alias_of < 0 && view.data != nullptr && (keeps || compares)) {
    memory::Block values(ledger, memory::Purpose::initial, view.count * 4);
    read_tensor(ledger, front(), view, reinterpret_cast<float*>(values.data()));
    round_initial(reinterpret_cast<float*>(values.data()), view.count);
    if (compares) first.hash = XXH3_64bits(values.data(), static_cast<size_t>(view.count) * 4);
    if (keeps) first.values = std::move(values);
  } else if (options.alias_of < 0 && compares) {
    first.hash = hash_of_zeros(view.count);
  }
  const std::unique_lock lock(mutex);
  initial.push_back(std::move(first));
  try {
    const int64_t id = model.add(std::move(parameter), options.group, options.alias_of);
    groups.resize(model.groups().size(), config.optimizer);
    return id;
  } catch (...) {
    initial.pop_back();
    throw;
  }
}

void Declared::set_group_value(const std::string& group, const std::string& name, double value) {
  hyperparameters_set_ = true;
  if (!group.empty()) {
    config::set_hyperparameter(groups[static_cast<size_t>(model.group_of(group))], name, value);
    return;
  }
  for (config::OptimizerConfig& g : groups) config::set_hyperparameter(g, name, value);
  config::set_hyperparameter(config.optimizer, name, value);  // for groups declared later
}

double Declared::group_value(const std::string& group, const std::string& name,
                             int64_t applied) const {
  const int32_t index = group.empty() ? 0 : model.group_of(group);
  const config::OptimizerConfig& own = groups[static_cast<size_t>(index)];
  if (name == "scheduled_lr") return optimizer::scheduled_lr(own.schedule, applied, own.lr);
  if (!own.schedule.sets(name)) return config::get_hyperparameter(own, name);
  return config::get_hyperparameter(optimizer::scheduled(own, applied), name);
}

double Declared::lr_of(int64_t root, int64_t applied) const {
  const config::OptimizerConfig& group = groups[static_cast<size_t>(model.at(root).group)];
  return optimizer::scheduled_lr(group.schedule, applied, group.lr);
}

void Declared::round_initial(float* values, int64_t count) const {
  if (!rounds_initial()) return;
  std::array<uint16_t, 1024> rounded{};
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(rounded.size())) {
    const int64_t n = std::min<int64_t>(count - i, rounded.size());
    kernels::convert(rounded.data(), config.compute, values + i, Format::float32, n);
    kernels::convert(values + i, Format::float32, rounded.data(), config.compute, n);
  }
}

std::vector<int64_t> Declared::trainable_roots() const {
  std::vector<int64_t> roots;
  for (int64_t id = 0; id < model.size(); ++id) {
    if (model.at(id).root == id && model.at(id).trainable) roots.push_back(id);
  }
  return roots;
}

tensor::View view_for(const Declared& declared, const layout::Parameter& parameter,
                      const otr_tensor& t, const char* what) {
  tensor::View view = tensor::check(t, format_text("the {} of \"{}\"", what, parameter.name), true,
                                    declared.device_id());
  if (!std::ranges::equal(view.shape, parameter.shape)) {
    fail(OTR_E_SHAPE, "the {} of \"{}\" has shape {}; the parameter has {}", what, parameter.name,
         tensor::text_of(view.shape), tensor::text_of(parameter.shape));
  }
  return view;
}

}  // namespace outrigger::engine

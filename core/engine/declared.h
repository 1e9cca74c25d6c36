// SPDX-License-Identifier: Apache-2.0
// What the host says of a training: configuration, device, parameters and their first values. After
// commit only hyperparameters change, and which parameters are frozen.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"
#include "core/context/context.h"
#include "core/device/collective.h"
#include "core/device/host.h"
#include "core/layout/model.h"
#include "core/memory/block.h"
#include "core/memory/ledger.h"
#include "core/memory/shown.h"
#include "core/observe/timeline.h"

namespace outrigger::engine {

struct ParameterOptions {
  bool trainable = true;
  int64_t alias_of = -1;
  std::string group = "default";
  int32_t contributions = 1;
  int64_t held_bytes = 0;
};

// By purpose, and the total; of the host, and of the device where the engine is on one.
struct MemoryEntries {
  std::array<memory::Entry, memory::kPurposes + 1> host{}, device{};
};

// What the declared parameters would need.
struct Estimate {
  int32_t world = 1, rank = 0;
  bool shares_memory = true;
  bool deepspeed = false;  // DeepSpeed's layout instead of ours
  // What the host has at a time: elements of acquired parameters, of them as float32 copies, and of
  // output gradients; and whether it gives all gradients at once.
  int64_t acquired = 0, widened = 0, outputs = 0;
  bool grads_at_once = false;
  // Not the training's peaks, but those of the start, with first values that are given before
  // commit, or that the host holds whole, or a rank's share of them, in so many bytes an element.
  enum class Start : uint8_t { none, given, held, share };
  Start start = Start::none;
  int64_t initial_element_bytes = 4;
  int32_t hosts = 1;       // that the ranks are on
  bool on_device = false;  // as if the engine were on one
};

struct Declared {
  Declared(std::shared_ptr<Context> context, std::string_view config_json, int32_t rank,
           int32_t world);

  // Before the first parameter: parameters and gradients are on this device from now on.
  void set_device(const otr_device& wanted);
  int64_t add(const std::string& name, const otr_tensor& value, const ParameterOptions& options);
  // group empty: all (set), "default" (get).
  void set_group_value(const std::string& group, const std::string& name, double value);
  // applied: updates so far, which schedules count.
  [[nodiscard]] double group_value(const std::string& group, const std::string& name,
                                   int64_t applied) const;
  [[nodiscard]] double lr_of(int64_t root, int64_t applied) const;
  [[nodiscard]] MemoryEntries estimate(const Estimate& wanted) const;
  // Which precisions need offload depends on where the parameters are.
  [[nodiscard]] config::EngineConfig config_on(config::EngineKind kind) const {
    return config::parse_engine(config_json, world, kind);
  }

  // Where the host's tensors are.
  [[nodiscard]] otr_device device_id() const { return device ? device->id() : tensor::kHost; }
  [[nodiscard]] device::Device& front() { return device ? *device : plain_host; }
  [[nodiscard]] bool rounds_initial() const {
    return config.round_initial && config.compute != kernels::Format::float32;
  }
  void round_initial(float* values, int64_t count) const;
  [[nodiscard]] std::vector<int64_t> trainable_roots() const;

  struct Initial {
    // Until commit; float32. On rank 0, or with initial_values "compare" on every rank that gave
    // it.
    memory::Block values;
    uint64_t hash = 0;    // of those given, or zeros, where ranks compare them
    memory::Charge held;  // what the host holds until the value is taken
  };

  const std::shared_ptr<Context> context;
  const std::string config_json;
  const int32_t rank, world;
  config::EngineConfig config;
  std::vector<config::OptimizerConfig> groups;  // by group index
  memory::Ledger ledger;
  memory::Shown shown;
  observe::Timeline timeline;
  std::shared_ptr<device::Device> device;  // null: the host
  // What moves its memory between ranks, where the configuration asks for it and there are several.
  std::optional<device::CollectivePlugin> collective;
  layout::Model model;
  std::vector<Initial> initial;  // by id
  // What a query from any thread reads while declarations, commit or the end change it.
  mutable std::shared_mutex mutex;

 private:
  device::Host plain_host{nullptr};  // for passes, which may outlive the workers
  bool hyperparameters_set_ = false;
};

// A tensor for the whole parameter; what: for texts.
[[nodiscard]] tensor::View view_for(const Declared& declared, const layout::Parameter& parameter,
                                    const otr_tensor& t, const char* what);

}  // namespace outrigger::engine

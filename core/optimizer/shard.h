// SPDX-License-Identifier: Apache-2.0
// A flat piece of parameters with its states, and an update rule for it, without an engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/context/context.h"
#include "core/device/host.h"
#include "core/memory/block.h"
#include "core/tensor/tensor.h"

namespace outrigger::optimizer {

// The caller owns weights, gradients and the published copy; the shard owns the states.
struct Shard {
  std::shared_ptr<Context> context;
  tensor::View weights, grads;
  std::optional<tensor::View> published;
  std::string name;
  int64_t first_element = 0;

  memory::Ledger ledger;
  kernels::Format exp_avg_format{}, exp_avg_sq_format{};  // once the states exist
  memory::Block exp_avg, exp_avg_sq;
  bool has_states = false;
  int64_t updates = 0;
};

// Checks dtypes, shapes and counts.
[[nodiscard]] std::shared_ptr<Shard> wrap_shard(std::shared_ptr<Context> context,
                                                const otr_tensor& weights, const otr_tensor& grads,
                                                const otr_shard_options& options);

class Optimizer {
 public:
  Optimizer(std::shared_ptr<Context> context, std::string_view json);

  void set_value(std::string_view name, double value) {
    config::set_hyperparameter(config_, name, value);
  }
  // One update of all shards with one norm; changes nothing when a gradient is not finite.
  void step(const std::vector<Shard*>& shards, otr_step_report& report);

 private:
  void check(const Shard& shard, size_t index) const;
  void allocate(Shard& shard) const;
  [[nodiscard]] kernels::UpdateCount update(Shard& shard, double gradient_factor);

  std::shared_ptr<Context> context_;
  config::OptimizerConfig config_;
  Workers workers_;
  device::Host host_{&workers_};
  int64_t steps_ = 0, applied_ = 0, skipped_ = 0;
};

}  // namespace outrigger::optimizer

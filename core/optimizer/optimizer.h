// SPDX-License-Identifier: Apache-2.0
// An update rule for shards, without an engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/config/config.h"
#include "core/context/context.h"
#include "core/device/host.h"
#include "core/optimizer/outliers.h"
#include "core/optimizer/shard.h"

namespace outrigger::optimizer {

class Optimizer {
 public:
  Optimizer(std::shared_ptr<Context> context, std::string_view json);

  void set_value(std::string_view name, double value) {
    config::set_hyperparameter(config_, name, value);
  }
  // Gives shards their states.
  void prepare(const std::vector<Shard*>& shards) const;
  // One update of all shards with one norm; changes nothing when a gradient is not finite.
  void step(const std::vector<Shard*>& shards, otr_step_report& report);

 private:
  void check(const Shard& shard, size_t index) const;
  void allocate(Shard& shard) const;
  void take_norm(const std::vector<Shard*>& shards, otr_step_report& report);
  void scale_layers(const std::vector<Shard*>& shards, std::span<kernels::Update> pieces);
  [[nodiscard]] std::vector<kernels::Update> updates(const std::vector<Shard*>& shards,
                                                     double gradient_factor) const;

  std::shared_ptr<Context> context_;
  config::OptimizerConfig config_;
  OutlierGuard outliers_;
  Workers workers_;
  device::Host host_{&workers_};
  int64_t steps_ = 0, applied_ = 0, skipped_ = 0;
};

}  // namespace outrigger::optimizer

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
#include "core/optimizer/newton_schulz.h"
#include "core/optimizer/outliers.h"
#include "core/optimizer/shard.h"

namespace outrigger::optimizer {

class Optimizer {
 public:
  Optimizer(std::shared_ptr<Context> context, std::string_view json);

  void set_value(std::string_view name, double value);
  // Gives shards their states.
  void prepare(const std::vector<Shard*>& shards) const;
  // One update of all shards with one norm; changes nothing when a gradient is not finite.
  void step(const std::vector<Shard*>& shards, otr_step_report& report);
  // That of the gradients as a step multiplies them.
  [[nodiscard]] double norm(const std::vector<Shard*>& shards);

  // Of a checkpoint: all that decides later steps but the shards, and the factor that a host gives
  // each step.
  struct Counts {
    int64_t steps = 0, applied = 0, skipped = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] const config::OptimizerConfig& config() const { return config_; }
  [[nodiscard]] const OutlierGuard& outliers() const { return outliers_; }
  [[nodiscard]] Context& context() const { return *context_; }
  void resume(const Counts& counts, config::OptimizerConfig config,
              const std::vector<double>& norms);

 private:
  void take_norm(const std::vector<Shard*>& shards, otr_step_report& report);
  void make_room(const std::vector<Shard*>& shards);
  kernels::UpdateCount update(const std::vector<Shard*>& shards, std::span<kernels::Update> pieces);
  kernels::UpdateCount update_matrix(const Shard& shard, const kernels::Update& piece);
  void scale_layers(const std::vector<Shard*>& shards, std::span<kernels::Update> pieces);
  // Fills pieces_.
  void fill_pieces(const std::vector<Shard*>& shards, double gradient_factor);

  std::shared_ptr<Context> context_;
  config::OptimizerConfig config_;
  double gradient_factor_ = 1;
  OutlierGuard outliers_;
  Workers workers_;
  device::Host host_{&workers_};
  std::vector<kernels::Update> pieces_;  // of a step; its memory stays
  memory::Ledger ledger_;
  memory::Block matrix_memory_;  // of Muon, for the largest matrix so far
  NewtonSchulz::Room matrix_room_;
  NewtonSchulz newton_schulz_;
  Counts counts_;
};

}  // namespace outrigger::optimizer

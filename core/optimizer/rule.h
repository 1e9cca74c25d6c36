// SPDX-License-Identifier: Apache-2.0
// From hyperparameters to the scalars of one update, and from a norm to the clip coefficient:
// everything of a step that is computed once on the host, in double.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "core/config/config.h"
#include "kernels/kernels.h"

namespace outrigger::optimizer {

// step: number of this update, from 1. gradient_factor: 1/(loss scale × world) × clip coefficient.
[[nodiscard]] kernels::UpdateScalars update_scalars(const config::OptimizerConfig& config,
                                                    int64_t step, double gradient_factor);

// The scalars of one step's updates, each worked out once for the parameters that share it: those
// of one group, with one number of updates, and of Muon's two halves.
class StepScalars {
 public:
  explicit StepScalars(double gradient_factor) : gradient_factor_(gradient_factor) {}
  // config: the group's. clock: what its schedule counts, one number for all parameters of the
  // group with so many `updates` before this one. rule: config's, or Adam for Muon's other half.
  const kernels::UpdateScalars& of(int32_t group, const config::OptimizerConfig& config,
                                   int64_t clock, int64_t updates, kernels::Rule rule);

 private:
  double gradient_factor_;
  std::map<std::tuple<int32_t, int64_t, kernels::Rule>, kernels::UpdateScalars> known_;
};

// An update's rule and roundings; matrix: of Muon's.
void set_rule(kernels::Update& update, const config::OptimizerConfig& config, bool matrix);

// What a layer's step is multiplied by in LAMB, from the norms of its weights and its direction.
[[nodiscard]] double trust_ratio(const config::OptimizerConfig& config, double weights,
                                 double direction);

// What a matrix's rate is multiplied by in Muon.
[[nodiscard]] double muon_factor(const config::OptimizerConfig& config, int64_t rows,
                                 int64_t columns);

// The second part of Muon's update: that by a direction (float32) as if it were SGD's gradient.
[[nodiscard]] kernels::Update by_direction(const kernels::Update& piece, const float* direction,
                                           double lr);

// Infinite if an element is not finite.
[[nodiscard]] double norm_of(const kernels::NormSum& squares);

// clip / (norm + 1e-6) where that is below 1, else 1; clip 0 means no clipping.
[[nodiscard]] double clip_coefficient(double norm, double clip);

}  // namespace outrigger::optimizer

// SPDX-License-Identifier: Apache-2.0
// What a run is besides tensors and declarations, as it stands now. progress.h writes it down.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/bits.h"
#include "core/comm/moment.h"
#include "core/engine/declared.h"
#include "core/engine/names.h"
#include "core/engine/progress.h"
#include "core/optimizer/loss_scaler.h"
#include "core/optimizer/outliers.h"

namespace outrigger::engine {

struct Run {
  explicit Run(const config::EngineConfig& config)
      : scaler(config.loss_scaling), outliers(config.optimizer.outliers) {}

  // What the communicators do from here on belongs to the step that comes next.
  void mark() const {
    const auto taken = applied_steps.load(std::memory_order_relaxed) + skipped_steps;
    moment->step.store(taken + 1, std::memory_order_relaxed);
    moment->micro_step.store(micro_steps + 1, std::memory_order_relaxed);
  }

  const std::shared_ptr<comm::Moment> moment = std::make_shared<comm::Moment>();
  int64_t micro_steps = 0, skipped_steps = 0;
  std::atomic<int64_t> applied_steps{0};  // group_value reads it while a step is pending
  int32_t boundary = OTR_BOUNDARY_CONFIGURED;
  optimizer::LossScaler scaler;
  optimizer::OutlierGuard outliers;
  std::vector<int64_t> updates;   // of each root so far
  bool stuck_at_minimum = false;  // the last step overflowed at the smallest scale
};

// The step after so many of a window ends it.
[[nodiscard]] inline bool is_boundary(const config::EngineConfig& config, const Run& run,
                                      int64_t steps) {
  if (run.boundary != OTR_BOUNDARY_CONFIGURED) return run.boundary == OTR_BOUNDARY_YES;
  return steps + 1 >= config.accumulation_steps;
}

// Of a training between two windows; groups: of ranks that are summed first.
[[nodiscard]] Progress progress_of(const Declared& declared, const Run& run, int32_t groups);

// A progress that fits a training, and what of it the run would change.
struct Resumed {
  Progress progress;
  std::vector<config::OptimizerConfig> groups;
  std::vector<int64_t> updates;
  Bits frozen;
};
// names: the text's. Throws OTR_E_CONFIG, OTR_E_NOT_FOUND; changes nothing.
[[nodiscard]] Resumed read_progress(std::string_view json, const Declared& declared,
                                    const Names& names);
// Of a checkpoint: a progress; or of one that was imported the counts of updates that it knows,
// with everything else as it is here. Throws OTR_E_NOT_FOUND where it knows none.
[[nodiscard]] Resumed read_saved_progress(std::string_view json, const Declared& declared,
                                          const Names& names, const Run& run, int32_t groups);
// Warns where the run was made under circumstances that give other bits.
void resume(Resumed resumed, Declared& declared, Run& run, int32_t groups);

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// What a rank's memory comes to while the parameters get their first values: commit's check of the
// free memory and the estimate follow it, and the ledger counts the same.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/plan.h"
#include "core/layout/layout.h"

namespace outrigger::engine {

// Elements of first values that are on their way at a time: as float32 they stay in a core's cache,
// and are many enough for a broadcast.
inline constexpr int64_t kInitialElements = int64_t{1} << 18;

// First values in this rank's host memory, which go as they are taken: parameter by parameter, in
// the order of declaration.
struct Start {
  std::vector<int64_t> held;   // bytes, by id
  std::vector<int64_t> whole;  // bytes while it is taken, by id, where more than held; else empty
  // Taken by commit, from the engine's own copies, in which rank 0's values come where ranks gave
  // others; else by otr_engine_set_initial.
  bool in_commit = false;
  bool from_rank0 = false;  // every rank is sent the whole of each value, not only what it keeps
};

struct StartPeaks {
  int64_t initial = 0;   // of the purpose "initial values"
  int64_t acquired = 0;  // of "acquired copies": values rounded on their way to a device
  int64_t total = 0;
  int64_t at_commit = 0;  // of this, when commit has made its blocks and nothing is taken yet
};

// Of a rank's host memory; slice: the one it has.
[[nodiscard]] StartPeaks peaks_of_start(const layout::Model& model, const layout::Layout& layout,
                                        const Plan& plan, int32_t slice, const Start& start);

}  // namespace outrigger::engine

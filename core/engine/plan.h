// SPDX-License-Identifier: Apache-2.0
// How many bytes an engine's big blocks have on one rank. Storage and reducers allocate by it, and
// the estimate adds it up, so the two agree to the byte.
#pragma once

#include <cstdint>

#include "core/config/config.h"
#include "core/layout/layout.h"
#include "core/memory/ledger.h"

namespace outrigger::engine {

// Where the published parameters are:
//   copy      stage 0: every rank has a copy
//   shared    ranks that share memory have one copy, of which each writes its own slices
//   replica   else, stages 1 and 2: every rank has a copy, and the slices are gathered into it
//   slices    else, stage 3: every rank has its slices, and the frozen parameters, which have none
enum class Home : uint8_t { copy, shared, replica, slices };

[[nodiscard]] inline int64_t bytes_of(int64_t elements, kernels::Format format) {
  return elements * static_cast<int64_t>(kernels::size_of(format));
}

struct Plan {
  Plan(const layout::Layout& layout, const config::EngineConfig& config, int32_t rank,
       bool shares_memory);

  Home home;
  uint64_t bucket_buffers;  // of the ring of the micro-step order
  // Charged to this rank. Windows that ranks share are larger: `shared_published`.
  int64_t published = 0, shared_published = 0;
  int64_t master = 0, exp_avg = 0, exp_avg_sq = 0;
  int64_t accumulators = 0, ring = 0;
  int64_t received = 0;  // what reduce_scatter copies where ranks share no memory

  [[nodiscard]] int64_t bytes_of(memory::Purpose purpose) const;
};

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// How a region that rank 0 made comes to the others: rank 0 offers it, all take a step together,
// the others take it. So an offer is always there when it is asked for, and nobody waits here.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>

#include "core/comm/region.h"

namespace outrigger::comm {

// Which operation made a region; the same on all ranks. Also names windows.
struct RegionId {
  uint64_t channel = 0, operation = 0;
  auto operator<=>(const RegionId&) const = default;
};

class RegionExchange {
 public:
  virtual ~RegionExchange() = default;
  // New memory of the kind this exchange can hand over. Throws OTR_E_OUT_OF_MEMORY.
  [[nodiscard]] virtual std::shared_ptr<Region> make(size_t bytes) = 0;
  // Rank 0, any thread. Throws OTR_E_SYSTEM.
  virtual void offer(RegionId id, const std::shared_ptr<Region>& region) = 0;
  // The others, any thread. nullptr: rank 0 offered none. Throws OTR_E_OUT_OF_MEMORY (mappings,
  // descriptors).
  [[nodiscard]] virtual std::shared_ptr<Region> take(RegionId id, size_t bytes) = 0;
};

}  // namespace outrigger::comm

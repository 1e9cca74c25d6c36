// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwloc.h>

#include <memory>

namespace outrigger::topology {

struct HwlocDestroy {
  void operator()(hwloc_topology* t) const { hwloc_topology_destroy(t); }
  void operator()(hwloc_bitmap_s* b) const { hwloc_bitmap_free(b); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, HwlocDestroy>;
using HwlocBitmap = std::unique_ptr<hwloc_bitmap_s, HwlocDestroy>;

// This machine as hwloc sees it; null where it sees nothing. flags: HWLOC_TOPOLOGY_FLAG_.
[[nodiscard]] HwlocTopology load_hwloc(unsigned long flags);

}  // namespace outrigger::topology

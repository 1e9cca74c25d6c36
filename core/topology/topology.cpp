// SPDX-License-Identifier: Apache-2.0
#include "core/topology/topology.h"

#include <algorithm>
#include <thread>

#include "core/topology/hwloc_handle.h"

namespace outrigger::topology {

int32_t available_cores() {
  const HwlocTopology topology = load_hwloc(0);
  const HwlocBitmap set(hwloc_bitmap_alloc());
  // The thread's binding, not the machine's cores: a launcher gives each worker a share.
  if (!topology || !set ||
      hwloc_get_cpubind(topology.get(), set.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
  }
  hwloc_bitmap_and(set.get(), set.get(), hwloc_topology_get_allowed_cpuset(topology.get()));
  return std::max(1, hwloc_bitmap_weight(set.get()));
}

}  // namespace outrigger::topology

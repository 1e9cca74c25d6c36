// SPDX-License-Identifier: Apache-2.0
#include "core/topology/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>

namespace outrigger::topology {
namespace {

struct Destroy {
  void operator()(hwloc_topology* t) const { hwloc_topology_destroy(t); }
  void operator()(hwloc_bitmap_s* b) const { hwloc_bitmap_free(b); }
};

}  // namespace

int32_t available_cores() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return 1;
  const std::unique_ptr<hwloc_topology, Destroy> topology(raw);
  const std::unique_ptr<hwloc_bitmap_s, Destroy> set(hwloc_bitmap_alloc());
  if (!set || hwloc_topology_load(raw) != 0) return 1;
  // The thread's binding, not the machine's cores: a launcher gives each worker a share.
  if (hwloc_get_cpubind(raw, set.get(), HWLOC_CPUBIND_THREAD) != 0) return 1;
  hwloc_bitmap_and(set.get(), set.get(), hwloc_topology_get_allowed_cpuset(raw));
  return std::max(1, hwloc_bitmap_weight(set.get()));
}

}  // namespace outrigger::topology

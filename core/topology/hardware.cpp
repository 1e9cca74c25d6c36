// SPDX-License-Identifier: Apache-2.0
#include "core/topology/hardware.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/topology/placement.h"

namespace outrigger::topology {
namespace {

std::string list_of(hwloc_const_cpuset_t set) {
  char* text = nullptr;
  if (set == nullptr || hwloc_bitmap_list_asprintf(&text, set) < 0) return {};
  const std::unique_ptr<char, decltype(&std::free)> owned(text, std::free);
  return text;
}

// Equal caches are counted, not listed.
void add(std::vector<Cache>& caches, hwloc_obj_t object) {
  const auto& attributes = object->attr->cache;
  const char* kind = attributes.type == HWLOC_OBJ_CACHE_DATA      ? "data"
                     : attributes.type == HWLOC_OBJ_CACHE_UNIFIED ? "unified"
                                                                  : "instruction";
  const Cache found{static_cast<int32_t>(attributes.depth), kind, attributes.size,
                    std::max(0, hwloc_bitmap_weight(object->cpuset)), 1};
  for (Cache& cache : caches) {
    if (cache.level == found.level && cache.kind == found.kind && cache.bytes == found.bytes &&
        cache.shared_by == found.shared_by) {
      cache.count++;
      return;
    }
  }
  caches.push_back(found);
}

}  // namespace

Hardware hardware() {
  const Hwloc topology = load_hwloc();
  if (!topology) return {{}, {}, {}, "the system does not describe its processors under /sys"};
  hwloc_topology_t raw = topology.get();

  Hardware found;
  for (const hwloc_obj_type_t type :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(raw, type, o)) != nullptr;) {
      add(found.caches, o);
    }
  }
  for (hwloc_obj_t o = nullptr;
       (o = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_NUMANODE, o)) != nullptr;) {
    found.nodes.push_back(
        {static_cast<int32_t>(o->os_index), o->attr->numanode.local_memory, list_of(o->cpuset)});
  }
  std::ranges::sort(found.nodes, {}, &NumaNode::number);
  found.cores_in_order = cores_in_order(raw);
  if (found.caches.empty()) found.reason = "the system describes no caches";
  return found;
}

}  // namespace outrigger::topology

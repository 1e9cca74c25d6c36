// SPDX-License-Identifier: Apache-2.0
#include "core/topology/hardware.h"

#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>

namespace outrigger::topology {
namespace {

// Where Linux describes no cores (containers without /sys), hwloc would say so on standard error.
bool describes_cores() {
#if defined(__linux__)
  const char* given = std::getenv("HWLOC_FSROOT");
  const std::string root = given == nullptr ? "" : given;
  std::error_code ignored;
  for (const char* folder : {"/sys/bus/cpu/devices", "/sys/devices/system/cpu"}) {
    for (const char* file : {"package_cpus", "core_cpus", "core_siblings", "thread_siblings"}) {
      if (std::filesystem::exists(root + folder + "/cpu0/topology/" + file, ignored)) return true;
    }
  }
  return false;
#else
  return true;
#endif
}

struct HwlocDestroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, HwlocDestroy>;

HwlocTopology empty_topology() {
  hwloc_topology_t raw = nullptr;
  return HwlocTopology(hwloc_topology_init(&raw) == 0 ? raw : nullptr);
}

// Null where hwloc sees nothing.
HwlocTopology load_topology() {
  if (!describes_cores()) return nullptr;
  HwlocTopology topology = empty_topology();
  if (!topology) return nullptr;
  // The machine's caches, whatever part of it this process may use.
  hwloc_topology_set_flags(topology.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(topology.get()) != 0) return nullptr;
  return topology;
}

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
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  // hwloc opens its plugins with a process's first topology and closes them with the last.
  static const HwlocTopology keeps_plugins_open = empty_topology();
  const HwlocTopology topology = load_topology();
  if (!topology) return {{}, {}, "the system does not describe its processors under /sys"};
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
  if (found.caches.empty()) found.reason = "the system describes no caches";
  return found;
}

}  // namespace outrigger::topology

// SPDX-License-Identifier: Apache-2.0
#include "core/topology/placement.h"

#include <algorithm>
#include <set>

namespace outrigger::topology {
namespace {

// The first memory node that is as near to the object as any is; null for none.
hwloc_obj_t first_node(hwloc_obj_t object) {
  while (object != nullptr && object->memory_first_child == nullptr) object = object->parent;
  // Memory may lie behind a cache of its own.
  hwloc_obj_t memory = object == nullptr ? nullptr : object->memory_first_child;
  while (memory != nullptr && memory->type != HWLOC_OBJ_NUMANODE) {
    memory = memory->memory_first_child;
  }
  return memory;
}

template <typename Objects>
std::vector<int32_t> nodes_of(const Objects& objects) {
  std::set<int32_t> nodes;
  for (const hwloc_obj_t object : objects) {
    if (const hwloc_obj_t node = first_node(object)) {
      nodes.insert(static_cast<int32_t>(node->os_index));
    }
  }
  return {nodes.begin(), nodes.end()};
}

}  // namespace

std::vector<int32_t> cores_in_order(hwloc_topology_t topology) {
  std::vector<int32_t> cores;
  for (hwloc_obj_t pu = nullptr;
       (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
    cores.push_back(static_cast<int32_t>(pu->os_index));
  }
  return cores;
}

std::vector<int32_t> nodes_of_cores(hwloc_topology_t topology, std::span<const int32_t> cores) {
  std::vector<hwloc_obj_t> units;
  for (const int32_t core : cores) {
    units.push_back(hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(core)));
  }
  return nodes_of(units);
}

std::vector<int32_t> nodes_of_pci(hwloc_topology_t topology, const std::string& bus_id) {
  hwloc_obj_t const device = hwloc_get_pcidev_by_busidstring(topology, bus_id.c_str());
  hwloc_obj_t const near =
      device == nullptr ? nullptr : hwloc_get_non_io_ancestor_obj(topology, device);
  // The whole machine is near to nothing.
  if (near == nullptr || near->cpuset == nullptr || near->type == HWLOC_OBJ_MACHINE) return {};
  std::vector<hwloc_obj_t> units;
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_inside_cpuset_by_type(
                                      topology, near->cpuset, HWLOC_OBJ_PU, pu)) != nullptr;) {
    units.push_back(pu);
  }
  return nodes_of(units);
}

}  // namespace outrigger::topology

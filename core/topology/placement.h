// SPDX-License-Identifier: Apache-2.0
// Which cores are near each other, and which memory is near a core or a device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/topology/hwloc.h"

namespace outrigger::topology {

// All cores, as the system numbers them, such that those that share a core's units, caches, a
// memory node and a package are neighbours. Equal runs of it are the shares of the ranks of a host:
// a system often numbers all first threads of its cores, of all nodes, before the second ones.
[[nodiscard]] std::vector<int32_t> cores_in_order(hwloc_topology_t topology);

// A core's node is the first of those that are nearest to it: behind it hwloc lists memory without
// cores of its own (high-bandwidth, attached by CXL), which a program has to ask for.
// Ascending, each once. What the topology does not know is left out.
[[nodiscard]] std::vector<int32_t> nodes_of_cores(hwloc_topology_t topology,
                                                  std::span<const int32_t> cores);

// Of the cores nearest to a PCI device ("0000:3b:00.0"); none where it is not there or belongs to
// no part of the machine.
[[nodiscard]] std::vector<int32_t> nodes_of_pci(hwloc_topology_t topology,
                                                const std::string& bus_id);

}  // namespace outrigger::topology

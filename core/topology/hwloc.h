// SPDX-License-Identifier: Apache-2.0
// A topology of hwloc's that is given back.
#pragma once

#include <hwloc.h>

#include <memory>
#include <string>

namespace outrigger::topology {

struct HwlocDestroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Hwloc = std::unique_ptr<hwloc_topology, HwlocDestroy>;

// This system's, with what this process may not use. Null where hwloc sees nothing.
[[nodiscard]] Hwloc load_hwloc();
// Of a description: hwloc's synthetic one ("package:2 core:4 pu:2"), or XML. Null where it is none.
[[nodiscard]] Hwloc load_hwloc(const std::string& description);

}  // namespace outrigger::topology

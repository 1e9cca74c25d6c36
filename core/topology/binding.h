// SPDX-License-Identifier: Apache-2.0
// On which memory nodes the pages of this process are to lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/topology/hwloc.h"

namespace outrigger::topology {

struct Binding {
  std::vector<int32_t> nodes;  // of the process's cores
  bool binds = false;          // they are fewer than there are
  std::string reason;          // why nothing is bound, if nothing is
};

// Of a process that may use these cores.
[[nodiscard]] Binding binding_of(hwloc_topology_t topology, std::span<const int32_t> cores);

// This process's, as its cores and its own memory policy were at the first call. Any thread.
[[nodiscard]] const Binding& process_binding();

// Asks the system to take the pages of [data, data + bytes), which has none yet, from the process's
// nodes as long as they have free memory. A wish, which nothing depends on; data begins a page.
void bind_pages(void* data, size_t bytes) noexcept;
// The same of these nodes. False: the system refuses.
bool bind_pages(hwloc_topology_t topology, std::span<const int32_t> nodes, void* data,
                size_t bytes) noexcept;

// The nodes that have the pages of these addresses, ascending; empty: none is touched yet, or the
// system does not tell.
[[nodiscard]] std::vector<int32_t> nodes_of_pages(std::span<const std::byte* const> addresses);

}  // namespace outrigger::topology

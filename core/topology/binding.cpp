// SPDX-License-Identifier: Apache-2.0
#include "core/topology/binding.h"

#include <unistd.h>

#include <exception>
#include <memory>
#include <utility>

#include "core/base/text.h"
#include "core/threads/cores.h"
#include "core/topology/placement.h"
#include "core/topology/reading.h"

namespace outrigger::topology {
namespace {

constexpr const char* kOneNode = "there is one memory node";

struct BitmapFree {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

// The main thread's: those of its other threads may be shares of it.
std::vector<int32_t> cores_of_process() {
  const std::vector<cpu_set_t> set = affinity_of(getpid());
  std::vector<int32_t> cores;
  for (size_t core = 0; core < set.size() * CPU_SETSIZE; ++core) {
    if (CPU_ISSET_S(core, set.size() * sizeof(cpu_set_t), set.data())) {
      cores.push_back(static_cast<int32_t>(core));
    }
  }
  return cores;
}

// Whoever starts a process with a policy (numactl) wants that one.
bool has_policy(hwloc_topology_t topology) {
  const Bitmap nodes(hwloc_bitmap_alloc());
  hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
  return hwloc_get_membind(topology, nodes.get(), &policy, HWLOC_MEMBIND_BYNODESET) == 0 &&
         policy != HWLOC_MEMBIND_DEFAULT && policy != HWLOC_MEMBIND_FIRSTTOUCH;
}

struct Process {
  Hwloc topology;  // null where nothing is bound
  Binding binding;
};

Process this_process() {
  Process process;
  // hwloc takes milliseconds, and few machines need it.
  const auto nodes = line_in("/sys/devices/system/node/online").value;
  if (!nodes || count_cores(*nodes).value_or(1) < 2) {
    process.binding.reason = kOneNode;
    return process;
  }
  process.topology = load_hwloc();
  if (!process.topology) {
    process.binding.reason = "the system does not describe its processors under /sys";
    return process;
  }
  process.binding = binding_of(process.topology.get(), cores_of_process());
  if (process.binding.binds && has_policy(process.topology.get())) {
    process.binding.binds = false;
    process.binding.reason = "the process has a memory policy of its own (numactl), which stays";
  }
  if (!process.binding.binds) process.topology.reset();
  return process;
}

const Process& process() {
  static const Process here = this_process();
  return here;
}

}  // namespace

Binding binding_of(hwloc_topology_t topology, std::span<const int32_t> cores) {
  Binding binding;
  binding.nodes = nodes_of_cores(topology, cores);
  const std::vector<int32_t> all = nodes_of_cores(topology, cores_in_order(topology));
  if (all.size() < 2) {
    binding.reason = kOneNode;
  } else if (binding.nodes.empty()) {
    binding.reason = "the system does not tell which memory is near to the process's cores";
  } else if (binding.nodes.size() == all.size()) {
    binding.reason = format_text("the process's cores are on all {} memory nodes", all.size());
  } else {
    binding.binds = true;
  }
  return binding;
}

const Binding& process_binding() { return process().binding; }

void bind_pages(void* data, size_t bytes) noexcept {
  try {
    const Process& here = process();
    if (here.binding.binds) bind_pages(here.topology.get(), here.binding.nodes, data, bytes);
  } catch (const std::exception&) {  // no memory to find out
  }
}

bool bind_pages(hwloc_topology_t topology, std::span<const int32_t> nodes, void* data,
                size_t bytes) noexcept {
  const Bitmap set(hwloc_bitmap_alloc());
  if (!set) return false;
  for (const int32_t node : nodes) hwloc_bitmap_set(set.get(), static_cast<unsigned>(node));
  // Without HWLOC_MEMBIND_STRICT: a full node gives no error and ends no process.
  return hwloc_set_area_membind(topology, data, bytes, set.get(), HWLOC_MEMBIND_BIND,
                                HWLOC_MEMBIND_BYNODESET) == 0;
}

std::vector<int32_t> nodes_of_pages(std::span<const std::byte* const> addresses) {
  const Hwloc topology = load_hwloc();
  const Bitmap set(hwloc_bitmap_alloc()), all(hwloc_bitmap_alloc());
  if (!topology || !set || !all) return {};
  for (const std::byte* address : addresses) {
    if (hwloc_get_area_memlocation(topology.get(), address, 1, set.get(),
                                   HWLOC_MEMBIND_BYNODESET) == 0) {
      hwloc_bitmap_or(all.get(), all.get(), set.get());
    }
  }
  std::vector<int32_t> nodes;
  for (int node = -1; (node = hwloc_bitmap_next(all.get(), node)) >= 0;) nodes.push_back(node);
  return nodes;
}

}  // namespace outrigger::topology

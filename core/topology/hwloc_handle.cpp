// SPDX-License-Identifier: Apache-2.0
#include "core/topology/hwloc_handle.h"

#include <cstdlib>
#include <filesystem>
#include <string>
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

}  // namespace

HwlocTopology load_hwloc(unsigned long flags) {
  hwloc_topology_t raw = nullptr;
  if (!describes_cores() || hwloc_topology_init(&raw) != 0) return nullptr;
  HwlocTopology topology(raw);
  hwloc_topology_set_flags(raw, flags);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

}  // namespace outrigger::topology

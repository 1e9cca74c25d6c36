// SPDX-License-Identifier: Apache-2.0
#include "core/topology/hwloc.h"

#include <cstdlib>
#include <filesystem>
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

Hwloc empty_topology() {
  hwloc_topology_t raw = nullptr;
  return Hwloc(hwloc_topology_init(&raw) == 0 ? raw : nullptr);
}

// describe: gives the new topology its source, and may refuse.
template <typename Describe>
Hwloc load(unsigned long flags, const Describe& describe) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  // hwloc opens its plugins with a process's first topology and closes them with the last.
  static const Hwloc keeps_plugins_open = empty_topology();
  Hwloc topology = empty_topology();
  if (!topology || !describe(topology.get())) return nullptr;
  hwloc_topology_set_flags(topology.get(), flags);
  return hwloc_topology_load(topology.get()) == 0 ? std::move(topology) : nullptr;
}

}  // namespace

Hwloc load_hwloc() {
  if (!describes_cores()) return nullptr;
  return load(HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED, [](hwloc_topology_t) { return true; });
}

Hwloc load_hwloc(const std::string& description) {
  return load(0, [&](hwloc_topology_t topology) {
    if (!description.starts_with('<'))
      return hwloc_topology_set_synthetic(topology, description.c_str()) == 0;
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    return hwloc_topology_set_xmlbuffer(topology, description.c_str(),
                                        static_cast<int>(description.size()) + 1) == 0;
  });
}

}  // namespace outrigger::topology

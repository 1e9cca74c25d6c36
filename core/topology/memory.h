// SPDX-License-Identifier: Apache-2.0
// The memory of the machine, and what this process may still touch before the kernel starts
// killing.
#pragma once

#include <cstdint>
#include <string>

#include "core/topology/reading.h"

namespace outrigger::topology {

struct FreeMemory {
  uint64_t bytes;
  std::string
      source;  // "MemAvailable of /proc/meminfo", "the limit in /sys/fs/cgroup/…/memory.max"
};

// The tightest of the host's available memory and the limits of this process's control groups.
// root: see groups_of.
[[nodiscard]] FreeMemory free_memory(const std::string& root = {});

struct MemoryLimit {
  Reading<uint64_t> bytes;
  std::string source;  // the file, if there is a limit
};

// The lowest limit of this process's control groups.
[[nodiscard]] MemoryLimit memory_limit(const std::string& root = {});

// "21.3 GiB"
[[nodiscard]] std::string memory_text(uint64_t bytes);

}  // namespace outrigger::topology

// SPDX-License-Identifier: Apache-2.0
// What this process may still touch before the kernel starts killing.
#pragma once

#include <cstdint>
#include <string>

namespace outrigger::comm {

struct FreeMemory {
  uint64_t bytes;
  std::string
      source;  // "MemAvailable of /proc/meminfo", "the limit in /sys/fs/cgroup/…/memory.max"
};

// The tightest of the host's available memory and the limits of this process's control groups.
[[nodiscard]] FreeMemory free_memory();

// "21.3 GiB"
[[nodiscard]] std::string memory_text(uint64_t bytes);

}  // namespace outrigger::comm

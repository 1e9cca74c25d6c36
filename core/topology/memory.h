// SPDX-License-Identifier: Apache-2.0
// The memory of the machine, and what this process may still touch before the kernel starts
// killing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/topology/reading.h"

namespace outrigger::topology {

struct FreeMemory {
  struct Term {
    uint64_t bytes;
    std::string source;  // "MemAvailable of /proc/meminfo", "the limit in /sys/fs/cgroup/…"
  };
  std::vector<Term> terms;  // the tightest first; at least one
  [[nodiscard]] uint64_t bytes() const { return terms.front().bytes; }
  [[nodiscard]] const std::string& source() const { return terms.front().source; }
  // Each term with what it leaves: "1.5 GiB by the limit in …, 21.3 GiB by MemAvailable of …".
  [[nodiscard]] std::string text() const;
};

// The host's available memory, and what the limits of this process's control groups leave.
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

// SPDX-License-Identifier: Apache-2.0
// What the system has really given for memory: pages that exist, huge ones, locked ones, and where
// they lie.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device/neighbours.h"

namespace outrigger::memory {

struct PageFacts {
  int64_t bytes = 0, resident = 0, huge = 0, locked = 0;
  std::vector<int32_t> nodes;  // of pages here and there
  std::string reason;          // why the system does not tell
};

// Of these ranges together. Where the system keeps one of them in a mapping with other memory, the
// mapping's figures count by its share. smaps: the system's table of mappings.
[[nodiscard]] PageFacts page_facts(std::vector<device::Neighbour> ranges,
                                   const std::string& smaps = "/proc/self/smaps");

}  // namespace outrigger::memory

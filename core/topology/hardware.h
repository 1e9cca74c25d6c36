// SPDX-License-Identifier: Apache-2.0
// Caches and NUMA nodes, as hwloc sees them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outrigger::topology {

struct Cache {
  int32_t level;
  const char* kind;   // "data", "unified", "instruction"
  uint64_t bytes;     // of one
  int32_t shared_by;  // cores (as the system numbers them) that one serves
  int32_t count;
};

struct NumaNode {
  int32_t number;
  uint64_t bytes;     // 0: not known
  std::string cores;  // "0-3"; empty: memory alone
};

struct Hardware {
  std::vector<Cache> caches;            // lowest level first
  std::vector<NumaNode> nodes;          // by number
  std::vector<int32_t> cores_in_order;  // placement.h
  std::string reason;                   // why there is nothing, if there is nothing
};

[[nodiscard]] Hardware hardware();

}  // namespace outrigger::topology

// SPDX-License-Identifier: Apache-2.0
// What this machine and this process offer, as JSON. A value that cannot be read is null, with
// "<name>_reason" beside it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace outrigger::topology {

// root: see groups_of. Caches and NUMA nodes are hwloc's, which has a variable of its own for that
// (HWLOC_FSROOT).
[[nodiscard]] nlohmann::ordered_json machine(const std::string& root = {});

}  // namespace outrigger::topology

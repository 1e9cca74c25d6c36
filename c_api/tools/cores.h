// SPDX-License-Identifier: Apache-2.0
// Processor cores and how workers share them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "machine.h"

namespace outrigger::tools {

using Cores = std::vector<int>;

// The cores that this process may run on, ascending.
[[nodiscard]] Cores available_cores();

// "0-3,8" → 0 1 2 3 8. Throws std::invalid_argument where it is malformed or names a core that this
// process may not run on.
[[nodiscard]] Cores parse_cores(std::string_view text);

// The same cores, those that share caches and memory nodes beside each other; those of which the
// machine (machine.h) knows nothing at the end.
[[nodiscard]] Cores in_machine_order(Cores cores, const Json& machine);

// Worker `index` of `workers` gets a run of neighbours, ascending; with fewer cores than workers,
// one core in turn.
[[nodiscard]] Cores share_of(const Cores& cores, int index, int workers);

// 0 1 2 3 8 → "0-3,8"
[[nodiscard]] std::string format_cores(const Cores& cores);

// Binds the calling process. False where the system refuses; errno says why.
[[nodiscard]] bool bind_to(const Cores& cores) noexcept;

}  // namespace outrigger::tools

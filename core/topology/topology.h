// SPDX-License-Identifier: Apache-2.0
// What this process may use of the machine.
#pragma once

#include <cstdint>

namespace outrigger::topology {

// Cores that the calling thread is allowed to run on, at least 1.
[[nodiscard]] int32_t available_cores();

}  // namespace outrigger::topology

// SPDX-License-Identifier: Apache-2.0
// Which cores are this process's, and its threads'.
#pragma once

#include <cstdint>
#include <vector>

namespace outrigger {

// A launcher has bound this process to cores that no other rank uses, and says so
// (OTR_CORES_BOUND=1).
[[nodiscard]] bool has_cores_of_its_own();

// A core for each worker, if the cores are this process's own and as many as the workers; else
// empty: threads that share cores with others are better left to the system.
[[nodiscard]] std::vector<int> cores_of_workers(int32_t workers);

// Keeps the calling thread on one core. Whether the system allows it does not matter.
void bind_thread(int core) noexcept;

}  // namespace outrigger

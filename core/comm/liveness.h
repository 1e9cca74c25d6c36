// SPDX-License-Identifier: Apache-2.0
// Whether a peer's process has ended. The kernel tells: no heartbeat, and no rank is special.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/comm/unique_fd.h"

namespace outrigger::comm {

class Region;

class Liveness {
 public:
  virtual ~Liveness() = default;
  // True once the rank's process has ended. Never waits. Any thread.
  [[nodiscard]] virtual bool ended(int32_t rank) const = 0;
};

// Ranks are threads: one cannot end alone.
[[nodiscard]] std::unique_ptr<Liveness> make_thread_liveness();

// processes[r] is a pidfd that rank r opened of itself, so process numbers and their namespaces
// play no part.
[[nodiscard]] std::unique_ptr<Liveness> make_pidfd_liveness(std::vector<UniqueFd> processes);

// Where pidfd_open is not to be had: rank r holds a record lock on byte r of the shared control
// memory, which the kernel drops when its process ends. (Not an open-file lock: a forked child
// would keep that.) Takes this rank's lock. `control` must keep its file, and ranks must be
// different processes.
[[nodiscard]] std::unique_ptr<Liveness> make_lock_liveness(std::shared_ptr<Region> control,
                                                           int32_t rank);

// A pidfd of this process; none if the kernel has no pidfd_open.
[[nodiscard]] UniqueFd open_own_pidfd();

}  // namespace outrigger::comm

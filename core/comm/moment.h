// SPDX-License-Identifier: Apache-2.0
// Which step an engine is at, for who keeps what its communicators do.
#pragma once

#include <atomic>
#include <cstdint>

namespace outrigger::comm {

struct Moment {
  // Counted from 1; 0: none has begun.
  std::atomic<int64_t> step{0}, micro_step{0};
};

}  // namespace outrigger::comm

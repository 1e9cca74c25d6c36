// SPDX-License-Identifier: Apache-2.0
#include "core/engine/prefetch.h"

#include "core/base/error.h"
#include "core/comm/wait.h"
#include "core/context/interrupt.h"

namespace outrigger::engine {

void Prefetch::begin(int64_t root) {
  const std::lock_guard lock(mutex_);
  numbers_[root] = worker_.add([this, root] { fetch_(*group_, root); });
}

void Prefetch::wait_for(uint64_t number) {
  while (!worker_.wait_for(number, comm::kSlice)) {
    if (interrupted(comm::Clock::now())) {
      fail(OTR_E_INTERRUPTED,
           "the wait for prefetched parameters was interrupted: {}. Make the call again to wait on",
           group_->waiting());
    }
  }
}

void Prefetch::wait(int64_t root) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = numbers_.at(root);
  }
  wait_for(number);
}

void Prefetch::wait_idle() { wait_for(worker_.added()); }

}  // namespace outrigger::engine

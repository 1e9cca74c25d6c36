// SPDX-License-Identifier: Apache-2.0
#include "core/engine/prefetch.h"

#include "core/base/error.h"
#include "core/comm/wait.h"
#include "core/context/interrupt.h"

namespace outrigger::engine {

void Prefetch::begin(const std::vector<int64_t>& roots) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = worker_.add([this, roots] { fetch_(*group_, roots); });
  for (const int64_t root : roots) numbers_[root] = number;
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

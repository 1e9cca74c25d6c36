// SPDX-License-Identifier: Apache-2.0
#include "core/engine/prefetch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/comm/wait.h"
#include "core/context/error.h"
#include "core/context/interrupt.h"
#include "core/threads/thread.h"

namespace outrigger::engine {

Prefetch::Prefetch(std::unique_ptr<comm::Communicator> comm, Fetch fetch)
    : comm_(std::move(comm)), fetch_(std::move(fetch)) {}

Prefetch::~Prefetch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  cancel();  // the thread may be waiting for ranks that will not come
  wake_.notify_one();
  thread_.join();
}

void Prefetch::begin(int64_t root) {
  if (!thread_.joinable()) thread_ = start_thread("prefetched parameters", [this] { serve(); });
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(root);
  }
  wake_.notify_one();
}

void Prefetch::serve() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || (!queue_.empty() && !failure_); });
    if (stop_) return;
    const int64_t root = queue_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      fetch_(*comm_, root);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    if (!failure_) queue_.pop_front();
    done_.notify_all();
  }
}

template <typename Done>
void Prefetch::wait_until(const Done& done) {
  std::unique_lock lock(mutex_);
  while (!done()) {
    if (failure_) std::rethrow_exception(failure_);
    lock.unlock();
    if (interrupted(comm::Clock::now())) {
      fail(OTR_E_INTERRUPTED,
           "the wait for prefetched parameters was interrupted: {}. Make the call again to wait on",
           comm_->waiting());
    }
    lock.lock();
    done_.wait_for(lock, comm::kSlice, [&] { return done() || failure_; });
  }
}

void Prefetch::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void Prefetch::wait(int64_t root) {
  wait_until([&] { return std::ranges::find(queue_, root) == queue_.end(); });
}

void Prefetch::wait_idle() {
  wait_until([this] { return queue_.empty(); });
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/stream.h"

#include <utility>

namespace outrigger::simulated {

Queue::Queue() : thread_([this] { serve(); }) {}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Queue::give(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++given_;
  }
  wake_.notify_one();
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  const uint64_t target = given_;
  done_cv_.wait(lock, [&] { return done_ >= target; });
}

void Queue::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
    ++done_;
    done_cv_.notify_all();
  }
}

void Event::set() {
  const std::lock_guard lock(mutex_);
  set_ = true;
  cv_.notify_all();
}

void Event::wait() const {
  std::unique_lock lock(mutex_);
  cv_.wait(lock, [this] { return set_; });
}

}  // namespace outrigger::simulated

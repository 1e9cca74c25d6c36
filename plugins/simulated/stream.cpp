// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/stream.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

namespace outrigger::simulated {

using Clock = std::chrono::steady_clock;

Time after(Time begin, double seconds) {
  return begin +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void end_at(Time end, double own, const std::function<void()>& work) {
  std::this_thread::sleep_until(after(end, -own));
  work();
  std::this_thread::sleep_until(end);
}

Queue::Queue() : thread_([this] { serve(); }) {}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Queue::give(Work work, Time not_before) {
  {
    const std::lock_guard lock(mutex_);
    // What an engine is given in a device's time may begin before the thread that gives it woke.
    work_.push_back({std::move(work), not_before == Time{} ? Clock::now() : not_before});
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
  prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds: a sleep ends when it should
  Time ended{};
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    Given next = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    ended = next.work(std::max(next.not_before, ended));
    next = {};
    lock.lock();
    ++done_;
    done_cv_.notify_all();
  }
}

void Event::set(Time when) {
  const std::lock_guard lock(mutex_);
  set_ = true;
  when_ = when;
  cv_.notify_all();
}

Time Event::wait() const {
  std::unique_lock lock(mutex_);
  cv_.wait(lock, [this] { return set_; });
  return when_;
}

bool Event::is_set() const {
  const std::lock_guard lock(mutex_);
  return set_;
}

}  // namespace outrigger::simulated

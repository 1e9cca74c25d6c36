// SPDX-License-Identifier: Apache-2.0
#include "core/base/serial_worker.h"

#include <algorithm>
#include <utility>

#include "core/base/thread.h"

namespace outrigger {

void SerialWorker::start() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable() && !stop_) thread_ = start_thread(what_, [this] { serve(); });
}

uint64_t SerialWorker::add(Job job) {
  start();
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  wake_.notify_one();
  return ++added_;
}

void SerialWorker::serve() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || (!jobs_.empty() && failure_ == nullptr); });
    if (stop_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    if (failure == nullptr) ++done_;
    if (failure == nullptr && done_ < wanted_) continue;
    wanted_ = kNone;
    ran_.notify_all();
  }
}

bool SerialWorker::wait_for(uint64_t number, std::chrono::nanoseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  std::unique_lock lock(mutex_);
  while (done_ < number && failure_ == nullptr) {
    wanted_ = std::min(wanted_, number);
    if (ran_.wait_until(lock, until) == std::cv_status::timeout) break;
  }
  if (done_ >= number) return true;
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return false;
}

uint64_t SerialWorker::added() {
  const std::lock_guard lock(mutex_);
  return added_;
}

void SerialWorker::check() {
  const std::lock_guard lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void SerialWorker::stop(const std::function<void()>& cancel) noexcept {
  std::thread ending;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    jobs_.clear();
    ending.swap(thread_);
  }
  if (!ending.joinable()) return;
  if (cancel) cancel();
  wake_.notify_one();
  ending.join();
}

}  // namespace outrigger

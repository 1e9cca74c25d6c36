// SPDX-License-Identifier: Apache-2.0
#include "core/threads/workers.h"

#include <chrono>
#include <utility>

#include "core/base/thread.h"

namespace outrigger {
namespace {

// The longest to spin: about what a sleep and a wake cost.
Spin::Duration spin_of(int32_t threads) {
  constexpr std::chrono::microseconds kMost{50};
  return threads <= usable_cores() ? kMost : std::chrono::microseconds(0);
}

}  // namespace

Workers::Workers(int32_t threads)
    : most_spin_(spin_of(threads)),
      spin_(most_spin_),
      shares_(static_cast<size_t>(threads < 1 ? 1 : threads)) {
  try {
    for (int32_t worker = 1; worker < threads; ++worker) {
      threads_.push_back(start_thread("a worker", [this, worker] { serve(worker); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

Workers::~Workers() { stop(); }

void Workers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    ++run_;  // for those that spin
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::run(int64_t count, const Task& task) {
  const std::lock_guard turn(turn_);
  if (threads_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
  cores_.follow_caller(threads_);
  {
    const std::lock_guard lock(mutex_);
    task_ = &task;
    const auto workers = static_cast<int64_t>(shares_.size());
    int64_t begin = 0;
    for (int64_t w = 0; w < workers; ++w) {
      Share& share = shares_[static_cast<size_t>(w)];
      share.next.store(begin, std::memory_order_relaxed);
      begin += count / workers + (w < count % workers ? 1 : 0);
      share.end = begin;
    }
    ++run_;
  }
  wake_.notify_all();
  drain(task, 0);
  {
    const std::lock_guard lock(mutex_);
    task_ = nullptr;
  }
  const auto is_over = [this] { return busy_.load(std::memory_order_acquire) == 0; };
  spin_.wait(is_over);
  std::unique_lock lock(mutex_);
  done_.wait(lock, is_over);
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Workers::serve(int32_t worker) {
  Spin spin(most_spin_);
  uint64_t seen = 0;
  for (;;) {
    spin.wait([&] { return run_.load(std::memory_order_acquire) != seen; });
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return run_ != seen; });
    if (stop_) return;
    seen = run_;
    const Task* task = task_;
    if (task == nullptr) continue;
    ++busy_;
    lock.unlock();
    drain(*task, worker);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

void Workers::drain(const Task& task, int32_t worker) {
  const size_t workers = shares_.size();
  for (size_t k = 0; k < workers; ++k) {
    Share& share = shares_[(static_cast<size_t>(worker) + k) % workers];
    for (;;) {
      const int64_t i = share.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= share.end) break;
      try {
        task(i, worker);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (failure_ == nullptr) failure_ = std::current_exception();
      }
    }
  }
}

}  // namespace outrigger

// SPDX-License-Identifier: Apache-2.0
// A fixed pool of threads that split a range of tasks. The caller works too, so a pool of one has
// no thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace outrigger {

// task(i, worker): the i-th task, run on worker 0 .. size()-1. If one throws, run()
// throws what came first, when no task runs any more.
using Task = std::function<void(int64_t, int32_t)>;

class Workers {
 public:
  explicit Workers(int32_t threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(threads_.size()) + 1; }

  // Runs tasks 0 .. count-1, each once, on any worker; returns when all are done. Any thread; one
  // run at a time, others wait for their turn.
  void run(int64_t count, const Task& task);

 private:
  void stop();
  void serve(int32_t worker);
  void drain(const Task& task, int64_t count, int32_t worker);

  std::mutex turn_;  // one run at a time
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::exception_ptr failure_;  // guarded by mutex_, as the next five are
  uint64_t run_ = 0;
  int32_t busy_ = 0;
  bool stop_ = false;
  const Task* task_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0};
  std::vector<std::thread> threads_;
};

}  // namespace outrigger

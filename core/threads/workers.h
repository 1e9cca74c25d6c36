// SPDX-License-Identifier: Apache-2.0
// A fixed pool of threads that split a range of tasks. The caller works too, so a pool of one has
// no thread. The threads keep off the caller's core (cores.h). After a run they look out for the
// next one a little while before they sleep, where each has a core; a run waits for those only that
// have joined it, so a thread that is slow to wake holds up nobody.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/spin.h"
#include "core/threads/cores.h"

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

  // Runs tasks 0 .. count-1, each once; returns when all are done. Any thread; one run at a time,
  // others wait for their turn. A worker begins with its own equal share of the tasks and then
  // helps the others: in runs over the same tasks most of a task's memory stays with the worker
  // that touched it first, its caches and its NUMA node.
  void run(int64_t count, const Task& task);

 private:
  void stop();
  void serve(int32_t worker);
  void drain(const Task& task, int32_t worker);

  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  const Spin::Duration most_spin_;
  std::mutex turn_;    // one run at a time
  WorkerCores cores_;  // guarded by turn_, as the next one is
  Spin spin_;          // of the caller
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::exception_ptr failure_;  // guarded by mutex_, as stop_ and task_ are
  bool stop_ = false;
  const Task* task_ = nullptr;    // null: there is nothing that a worker could still join
  std::atomic<uint64_t> run_{0};  // grows with each run, under mutex_
  std::atomic<int32_t> busy_{0};  // workers that have joined the run; changes under mutex_
  std::vector<Share> shares_;     // one for each worker; set before a run
  std::vector<std::thread> threads_;
};

}  // namespace outrigger

// SPDX-License-Identifier: Apache-2.0
// One thread that runs the jobs it is given, in the order in which they came.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace outrigger {

class SerialWorker {
 public:
  using Job = std::function<void()>;

  // what: names the thread where the system has none to give.
  explicit SerialWorker(const char* what) : what_(what) {}
  ~SerialWorker() { stop(); }
  SerialWorker(const SerialWorker&) = delete;
  SerialWorker& operator=(const SerialWorker&) = delete;

  // Starts the thread, which else the first job does. Throws OTR_E_OUT_OF_MEMORY.
  void start();
  // Does not wait. Returns the job's number, counted from 1. No job runs after one that threw, or
  // after stop. Any thread.
  uint64_t add(Job job);
  // Waits at most so long; whether the job of that number, and so all before it, have run. Throws
  // what a job has thrown before. Any thread.
  bool wait_for(uint64_t number, std::chrono::nanoseconds longest);
  // The number of the last job that was added. Any thread.
  [[nodiscard]] uint64_t added();
  // Throws what a job has thrown. Any thread.
  void check();
  // Drops the jobs that have not begun, calls cancel, which may end the one that runs, and waits
  // for the end of the thread.
  void stop(const std::function<void()>& cancel = nullptr) noexcept;

 private:
  void serve() noexcept;

  const char* const what_;
  std::mutex mutex_;  // guards all below
  std::condition_variable wake_, ran_;
  std::deque<Job> jobs_;  // not the one that runs
  uint64_t added_ = 0, done_ = 0;
  static constexpr uint64_t kNone = UINT64_MAX;
  uint64_t wanted_ =
      kNone;  // the first job that somebody waits for: its end wakes them, no other's
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace outrigger

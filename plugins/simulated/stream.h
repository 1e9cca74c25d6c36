// SPDX-License-Identifier: Apache-2.0
// Threads that do work in the order in which it was given: streams and copy engines.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace outrigger::simulated {

class Queue {
 public:
  Queue();
  ~Queue();  // what was given is done first
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void give(std::function<void()> work);
  // Returns when everything given before is done.
  void drain();

 private:
  void serve();
  std::mutex mutex_;
  std::condition_variable wake_, done_cv_;
  std::deque<std::function<void()>> work_;  // guarded by mutex_, as the next three are
  uint64_t given_ = 0, done_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

// A point in a stream that others may wait for.
class Event {
 public:
  void set();
  void wait() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable cv_;
  bool set_ = false;
};

}  // namespace outrigger::simulated

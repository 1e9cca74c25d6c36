// SPDX-License-Identifier: Apache-2.0
// Threads that do work in the order in which it was given: streams and copy engines. Each has a
// time of its own, which is the device's: work begins when it was given or when the work before it
// ended, whichever is later, however late the thread wakes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace outrigger::simulated {

using Time = std::chrono::steady_clock::time_point;

// Does `work`, which takes this thread about `own` seconds, so that it ends at `end`.
void end_at(Time end, double own, const std::function<void()>& work);
[[nodiscard]] Time after(Time begin, double seconds);

class Queue {
 public:
  // begin: when the device begins the work. Returns when it ends.
  using Work = std::function<Time(Time begin)>;
  Queue();
  ~Queue();  // what was given is done first
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // not_before: in the device's time; a time that has passed is now.
  void give(Work work, Time not_before = {});
  // Returns when everything given before is done.
  void drain();

 private:
  struct Given {
    Work work;
    Time not_before;
  };
  void serve();
  std::mutex mutex_;
  std::condition_variable wake_, done_cv_;
  std::deque<Given> work_;  // guarded by mutex_, as the next three are
  uint64_t given_ = 0, done_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

// A point in a stream that others may wait for.
class Event {
 public:
  void set(Time when);
  Time wait() const;
  [[nodiscard]] bool is_set() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable cv_;
  bool set_ = false;
  Time when_{};
};

}  // namespace outrigger::simulated

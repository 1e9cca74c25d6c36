// SPDX-License-Identifier: Apache-2.0
// Waiting for peers: spin a little, then sleep on the bell in short slices; each slice looks around
// (failure, dead peers, deadline), so no wait outlives its deadline or a peer's death by more than
// one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/comm/control.h"

namespace outrigger::comm {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC

inline constexpr auto kSlice = std::chrono::milliseconds(50);

// A point in time that may be "never".
[[nodiscard]] Clock::time_point deadline_in(double seconds);

// Makes what was stored before visible to sleepers, without waking them. The thread whose call
// comes last sees what every earlier caller stored; it alone need call wake.
inline void ring(Bell& bell) { bell.rings.fetch_add(1, std::memory_order_seq_cst); }
void wake(Bell& bell);

// Sleeps until the bell's count differs from `seen`, the time is over, or for no reason. True:
// somebody called wake.
bool sleep_on(Bell& bell, uint32_t seen, Clock::duration at_most);

inline void relax_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long to spin before sleeping: up to `most` iterations while that pays, almost never when the
// peers turn out to need longer or the cores are taken by others.
class Spin {
 public:
  explicit Spin(int32_t most) : most_(most) {}

  // True if ready() came true in time.
  template <typename Ready>
  bool wait(Ready&& ready) {
    constexpr uint32_t kProbe = 32;  // every so many waits spin fully, to notice better times
    const int32_t limit = ++waits_ % kProbe == 0 ? most_ : budget_;
    for (int32_t i = 0; i < limit; i++) {
      if (ready()) {
        budget_ = std::min(most_, std::max(2 * i, most_ / 8));
        return true;
      }
      relax_cpu();
    }
    budget_ /= 2;
    return false;
  }

 private:
  const int32_t most_;
  int32_t budget_ = most_;
  uint32_t waits_ = 0;
};

// Returns once ready(). look_around(now) is called in every slice spent asleep and may throw.
template <typename Ready, typename LookAround>
void wait_until(Bell& bell, Spin& spin, Ready&& ready, LookAround&& look_around) {
  if (spin.wait(ready)) return;
  struct Sleeper {
    Bell& bell;
    explicit Sleeper(Bell& b) : bell(b) { bell.sleepers.fetch_add(1, std::memory_order_seq_cst); }
    ~Sleeper() { bell.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  } const sleeper(bell);
  Clock::time_point next_look = Clock::now();
  for (;;) {
    // Order matters: a ring between this load and the sleep changes the count, and sleep_on
    // returns.
    const uint32_t seen = bell.rings.load(std::memory_order_seq_cst);
    if (ready()) return;
    const auto now = Clock::now();
    if (now >= next_look) {
      look_around(now);
      next_look = now + kSlice;
    }
    // Woken for nothing: somebody failed, aborted or left, which is worth a look at once.
    if (sleep_on(bell, seen, next_look - now)) next_look = now;
  }
}

// The most iterations to spin: `wanted`, or if −1 a choice; none when ranks have to share cores.
[[nodiscard]] int32_t choose_spin(int32_t wanted, int32_t ranks, int32_t cores);
[[nodiscard]] int32_t usable_cores();  // of this process
[[nodiscard]] int32_t online_cores();  // of this host

}  // namespace outrigger::comm

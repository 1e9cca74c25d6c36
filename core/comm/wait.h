// SPDX-License-Identifier: Apache-2.0
// Waiting for peers: spin a little, then sleep on the bell in short slices; each slice looks around
// (failure, dead peers, deadline), so no wait outlives its deadline or a peer's death by more than
// one.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/base/spin.h"
#include "core/comm/control.h"

namespace outrigger::comm {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC

inline constexpr auto kSlice = std::chrono::milliseconds(50);

// A point in time that may be "never".
[[nodiscard]] Clock::time_point deadline_in(double seconds);

// Whoever sleeps looks again, and whoever is about to.
void ring(Bell& bell);
// The same for what sleepers wait for, ready(), after a seq_cst store of it: costs a load where
// nobody sleeps. Of several who store, and then look at what the others stored, the last sees all
// of it; it alone need ring.
inline void ring_sleepers(Bell& bell) {
  if (bell.sleepers.load(std::memory_order_seq_cst) != 0) ring(bell);
}

// Sleeps until the bell's count differs from `seen`, the time is over, or for no reason. True:
// somebody rang.
bool sleep_on(Bell& bell, uint32_t seen, Clock::duration at_most);

// Returns once ready(), which loads with seq_cst what it waits for. look_around(now) is called in
// every slice spent asleep and may throw.
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
    // returns. Who did not ring, since there was no sleeper yet, had stored what ready() sees.
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

// The longest to spin: `wanted` microseconds, or if −1 a choice; not at all when ranks have to
// share cores.
[[nodiscard]] Clock::duration choose_spin(int32_t wanted, int32_t ranks, int32_t cores);

}  // namespace outrigger::comm

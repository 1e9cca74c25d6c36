// SPDX-License-Identifier: Apache-2.0
// The loop of Group::watch: nothing rings a bell when a device has come to the end of its work.
#pragma once

#include <algorithm>
#include <functional>
#include <thread>

#include "core/comm/wait.h"

namespace outrigger::comm {

// look_around(now) is called first, and then after each slice; it may throw.
template <typename LookAround>
void watch_until(const std::function<bool()>& ready, const LookAround& look_around) {
  constexpr auto kLeast = std::chrono::microseconds(5), kMost = std::chrono::microseconds(100);
  std::chrono::microseconds pause = kLeast;
  Clock::time_point next_look{};
  while (!ready()) {
    if (const auto now = Clock::now(); now >= next_look) {
      look_around(now);
      next_look = now + kSlice;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kMost);
  }
}

}  // namespace outrigger::comm

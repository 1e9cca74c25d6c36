// SPDX-License-Identifier: Apache-2.0
#include "core/observe/quick_clock.h"

#include <algorithm>
#include <cmath>

#include "core/observe/timeline.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace outrigger::observe {
namespace {

constexpr int64_t kLeast = 20'000;  // nanoseconds: a shorter span shows the looks' own jitter
constexpr double kMost = 1e6;
// Of a counter that went on evenly, on one processor or in step with the others.
constexpr double kLeastPerTick = 0.05, kMostPerTick = 20;
constexpr int32_t kFraction = 32;  // kMost · 2^kFraction has 52 bits

}  // namespace

int64_t QuickClock::at(uint64_t ticks, int64_t (*look)()) noexcept {
  const uint64_t passed = ticks - base_ticks_;
  if (passed < trusted_) {
    const int64_t time = base_ + static_cast<int64_t>((passed * per_tick_) >> kFraction);
    return last_ = std::max(last_, time);
  }
  const int64_t time = look();
  const int64_t span = time - base_;
  if (base_ == 0 || span >= kLeast) {
    const double per_tick = static_cast<double>(span) / static_cast<double>(passed);
    const bool is_even = base_ != 0 && per_tick > kLeastPerTick && per_tick < kMostPerTick;
    trusted_ = is_even ? std::min(2 * passed, static_cast<uint64_t>(kMost / per_tick)) : 0;
    per_tick_ = is_even ? static_cast<uint64_t>(std::ldexp(per_tick, kFraction)) : 0;
    base_ = time;
    base_ticks_ = ticks;
  }
  return last_ = std::max(last_, time);
}

int64_t QuickClock::now() noexcept {
#if defined(__x86_64__)
  return at(__rdtsc(), observe::now);
#else
  return observe::now();  // the system's clock is the counter, at little more than its cost
#endif
}

}  // namespace outrigger::observe

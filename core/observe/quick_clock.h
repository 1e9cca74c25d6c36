// SPDX-License-Identifier: Apache-2.0
// now() for who asks so often that a look at the system's clock, some 30 ns, shows.
#pragma once

#include <cstdint>

namespace outrigger::observe {

// Between two looks at the system's clock the processor's counter goes on from the last one. A rate
// is trusted for twice as long as it was measured, a millisecond's ticks at most: so the time is
// right to the looks' own jitter where the counter is even, and within milliseconds where it is
// not. Never goes back. For one thread at a time.
class QuickClock {
 public:
  [[nodiscard]] int64_t now() noexcept;
  // As now(), at this reading of the counter; look: the system's clock.
  [[nodiscard]] int64_t at(uint64_t ticks, int64_t (*look)()) noexcept;

 private:
  uint64_t base_ticks_ = 0, trusted_ = 0;  // ticks behind the base
  int64_t base_ = 0, last_ = 0;
  // Nanoseconds by 2^kFraction: integers leave no flags of floating point behind, which a call of
  // the library would have to take back.
  uint64_t per_tick_ = 0;
};

}  // namespace outrigger::observe

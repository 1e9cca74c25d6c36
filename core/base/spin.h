// SPDX-License-Identifier: Apache-2.0
// Waiting for what comes soon, without the system.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace outrigger {

inline void relax_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long to spin before sleeping: up to `most` while that pays, almost never when the peers turn
// out to need longer or the cores are taken by others.
class Spin {
 public:
  using Duration = std::chrono::steady_clock::duration;
  explicit Spin(Duration most) : most_(most), budget_(most) {}

  // True if ready() came true in time.
  template <typename Ready>
  bool wait(Ready&& ready) {
    constexpr uint32_t kProbe = 32;  // every so many waits spin fully, to notice better times
    const Duration limit = ++waits_ % kProbe == 0 ? most_ : budget_;
    if (limit < kShort) {
      budget_ /= 2;
      return false;
    }
    for (int32_t i = 0; i < kHot; i++) {
      if (ready()) return succeeded();
      relax_cpu();
    }
    // Whoever else wants this core has it: perhaps the thread that this one waits for.
    for (const auto begun = std::chrono::steady_clock::now();
         std::chrono::steady_clock::now() - begun < limit;) {
      for (int32_t i = 0; i < kHot / 8; i++) {
        if (ready()) return succeeded();
        relax_cpu();
      }
      std::this_thread::yield();
    }
    budget_ /= 2;
    return false;
  }

 private:
  static constexpr Duration kShort = std::chrono::microseconds(1);
  static constexpr int32_t kHot = 128;  // a few microseconds

  // One late peer must not make all later waits sleep: a peer that sleeps comes later than spinning
  // lasts, and so on. Half the time is still more than it takes to wake somebody.
  bool succeeded() {
    budget_ = std::max(budget_, most_ / 2);
    return true;
  }

  const Duration most_;
  Duration budget_;
  uint32_t waits_ = 0;
};

}  // namespace outrigger

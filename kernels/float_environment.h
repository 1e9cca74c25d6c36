// SPDX-License-Identifier: Apache-2.0
// The floating-point settings of a kernel call: round to nearest even, no flushing of denormals, no
// traps. A host may have set others (-ffast-math start-up code does); they are put back, status
// flags included.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace outrigger::kernels {

class FloatEnvironment {
 public:
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

#if defined(__x86_64__)
  // Writing the register takes longer than many a call, and most hosts have these settings.
  FloatEnvironment() : saved_(_mm_getcsr()) {
    if ((saved_ & ~kFlags) != kSettings) _mm_setcsr(kSettings);
  }
  ~FloatEnvironment() {
    if (_mm_getcsr() != saved_) _mm_setcsr(saved_);
  }

 private:
  static constexpr uint32_t kSettings = 0x1f80, kFlags = 0x3f;
  uint32_t saved_;
#elif defined(__aarch64__)
  FloatEnvironment() {
    asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr\n\tmsr fpcr, xzr"
                 : "=r"(control_), "=r"(status_)::"memory");
  }
  ~FloatEnvironment() {
    asm volatile("msr fpsr, %1\n\tmsr fpcr, %0" ::"r"(control_), "r"(status_) : "memory");
  }

 private:
  uint64_t control_, status_;
#else
  FloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
};

}  // namespace outrigger::kernels

// SPDX-License-Identifier: Apache-2.0
// A sum of non-negative doubles that is rounded once: the same for any order and any grouping.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/limbs.h"

namespace outrigger::optimizer {

// Trivially copyable without padding: it crosses processes.
class ExactSum {
 public:
  // value: not negative, and not NaN.
  void add(double value) {
    if (std::isinf(value)) {
      infinite_ = 1;
      return;
    }
    int exponent = 0;
    const double mantissa = std::frexp(value, &exponent);  // value = mantissa · 2^exponent
    const int below = exponent - 53 < kUnit ? kUnit - (exponent - 53) : 0;  // zeros of a subnormal
    const auto bits = static_cast<uint64_t>(std::ldexp(mantissa, 53)) >> below;
    kernels::add_at(limbs_, bits, exponent - 53 + below - kUnit);
  }
  void add(const ExactSum& other) {
    kernels::add_limbs(limbs_, other.limbs_);
    infinite_ |= other.infinite_;
  }
  [[nodiscard]] double value() const {
    return infinite_ != 0 ? HUGE_VAL : kernels::round_limbs(limbs_, kUnit);
  }

 private:
  static constexpr int kUnit = -1074;  // the smallest double is 2^-1074, the largest below 2^1024
  std::array<uint64_t, 34> limbs_{};   // room for 2^78 of the largest
  uint64_t infinite_ = 0;
};

}  // namespace outrigger::optimizer

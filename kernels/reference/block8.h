// SPDX-License-Identifier: Apache-2.0
// 8-bit blocks: the 256 elements of a leaf as small floating-point numbers times one power of two.
//
//   block8            sign, 4 exponent bits, 3 mantissa bits: 2^-17 to 1.875 of the scale
//   positive_block8   5 exponent bits, 3 mantissa bits:       2^-33 to 1.875 of the scale
//
// Both have gradual underflow. The scale is the smallest power of two, from 2^-100, for which no
// element's code is beyond the last: so decoding is exact. Encoding rounds to nearest even or
// stochastically (16 random bits, below the last bit kept); below the least normal value what lies
// 2^-20 of a code and less beneath the last bit is rounded off before.
//
// A positive value is never stored as zero in positive_block8: a second moment of zero beside a
// first moment that is not would be divided into a step without bound. The ranges match: whatever
// survives in the first moment, at 2^-17 of its block's largest, has a second moment not below
// 2^-34 of the largest of its.
//
// A block with an Inf or a NaN (a second moment overflows from a gradient of about 6e20 on) has the
// canonical NaN for its scale and is NaN as a whole.
#pragma once

#include "kernels/reference/philox.h"

namespace outrigger::kernels::reference {

template <bool kPositive>
struct Code8 {
  static constexpr int kLeastNormal = kPositive ? -30 : -14;  // exponent of the least normal value
  static constexpr uint32_t kMantissaBits = 3, kCut = 23 - kMantissaBits;
  // float32 bits of a normal value = (code << kCut) + kOffset
  static constexpr uint32_t kOffset = static_cast<uint32_t>(kLeastNormal + 126) << 23;
  static constexpr uint32_t kLeastNormalCode = 1U << kMantissaBits;
  static constexpr uint32_t kLastCode = kPositive ? 255 : 127;
  static constexpr float kLeast = kPositive ? 0x1p-30F : 0x1p-14F;
};

inline constexpr int32_t kLeastScaleExponent = -100, kLastScaleExponent = 127;

// The exponent of a block's scale, from the bits of its largest magnitude, which is finite.
OTR_ELEMENTWISE int32_t block_exponent(uint32_t largest) {
  // A mantissa beyond the last code's carries into the exponent.
  const auto exponent = static_cast<int32_t>((largest + 0x000fffff) >> 23) - 127;
  return exponent < kLeastScaleExponent  ? kLeastScaleExponent
         : exponent > kLastScaleExponent ? kLastScaleExponent
                                         : exponent;
}

// 2^exponent; −127 gives the denormal.
OTR_ELEMENTWISE float power_of_two(int32_t exponent) {
  return exponent < -126 ? 0x1p-127F : float_of(static_cast<uint32_t>(exponent + 127) << 23);
}

// What is added below the last bit kept.
OTR_ELEMENTWISE uint32_t nearest_increment8(uint32_t bits) { return 0x7ffff + ((bits >> 20) & 1); }
OTR_ELEMENTWISE uint32_t random_increment8(uint16_t random) { return uint32_t{random} << 4; }

// Code of x, without the sign; inverse: 1 / scale.
template <bool kPositive, class Increment>
OTR_ELEMENTWISE uint32_t encode8(float x, float inverse, const Increment& increment) {
  using C = Code8<kPositive>;
  const uint32_t magnitude = bits_of(x * inverse) & 0x7fffffff;
  const bool small = magnitude < bits_of(C::kLeast);
  // Among the small ones the last bit has one place value: adding the least normal aligns them.
  const uint32_t bits = small ? bits_of(float_of(magnitude) + C::kLeast) : magnitude;
  uint32_t code = ((bits + increment(bits)) >> C::kCut) - (C::kOffset >> C::kCut);
  if (small) code -= C::kLeastNormalCode;
  if (code > C::kLastCode) code = C::kLastCode;
  if (kPositive && code == 0 && x != 0) code = 1;
  return code;
}

// Of a magnitude's code.
template <bool kPositive>
OTR_ELEMENTWISE float decode8(uint32_t code) {
  using C = Code8<kPositive>;
  if (code < C::kLeastNormalCode) {
    return float_of(((code + C::kLeastNormalCode) << C::kCut) + C::kOffset) - C::kLeast;
  }
  return float_of((code << C::kCut) + C::kOffset);
}

void unpack(float* values, const void* codes, const float* scales, Format format, int64_t count);
void pack(void* codes, float* scales, Format format, const float* values, int64_t count,
          const BlockRounding& rounding);

}  // namespace outrigger::kernels::reference

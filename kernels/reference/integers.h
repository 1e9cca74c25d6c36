// SPDX-License-Identifier: Apache-2.0
// 8-bit integers: the 256 elements of a leaf as integers from −127 to 127 times one float32.
//
// The scale is a 127th of the leaf's largest magnitude, and of 2^-100 where that is less; an
// element is rounded to the nearest multiple of it, even ones in a tie. So each is within 1/254 of
// the largest of its leaf, which suits weights, whose sizes in a leaf are alike; 8-bit blocks
// (block8.h) are within 1/16 of the element itself. A leaf with an Inf or a NaN has the canonical
// NaN for its scale and is NaN as a whole.
#pragma once

#include "kernels/reference/formats.h"

namespace outrigger::kernels::reference {

inline constexpr float kLargestInteger = 127, kLeastLargest = 0x1p-100F;
// The last magnitude that comes back finite, whichever way its scale is rounded.
inline constexpr float kMostLargest = 0x1.fffffcp+127F;

// From the bits of a leaf's largest magnitude.
inline float integer_scale(uint32_t largest) {
  if (largest >= 0x7f800000) return float_of(kCanonicalNan);
  const float magnitude = float_of(largest);
  return (magnitude < kLeastLargest  ? kLeastLargest
          : magnitude > kMostLargest ? kMostLargest
                                     : magnitude) /
         kLargestInteger;
}

void to_integers(void* integers, float* scales, const float* values, int64_t count);
void from_integers(float* values, const void* integers, const float* scales, int64_t count);

}  // namespace outrigger::kernels::reference

// SPDX-License-Identifier: Apache-2.0
// Sum of squares of a flat array, a leaf of 256 elements at a time.
//
//   lane[l] = sum over k of x[l + 32k]^2, k = 0..7 in order, in float64   (a float32's square is
//   exact) tree    = lane[l] += lane[l + step] for l < step, step = 16, 8, 4, 2, 1 total  +=
//   lane[0], exactly: an integer in units of 2^-298
//
// 2^-298 is the square of the smallest float32; every leaf sum is a multiple of it and below 2^265,
// so 640 bits hold the sum of 2^77 leaves. A leaf with an Inf or NaN (its sum is then not finite,
// and only then) is left out; its non-finite elements are counted and the lowest index is kept.
#pragma once

#include "kernels/limbs.h"
#include "kernels/reference/formats.h"

namespace outrigger::kernels::reference {

inline constexpr int kLanes = 32;
inline constexpr int kUnitExponent = -298;
inline constexpr int kLimbs = 10;  // of a NormSum

// Folds the 32 lanes in the fixed order.
OTR_ELEMENTWISE double sum_of_lanes(double (&lane)[kLanes]) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int l = 0; l < step; ++l) lane[l] += lane[l + step];
  }
  return lane[0];
}

// A finite leaf sum that is not zero, in the unit: mantissa * 2^position.
struct LeafSum {
  uint64_t mantissa;
  int position;
};
OTR_ELEMENTWISE LeafSum in_units(double leaf) {
  const auto bits = __builtin_bit_cast(uint64_t, leaf);
  // leaf >= 2^-298 is a normal double: mantissa * 2^(exponent - 1075).
  const uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  const int position = static_cast<int>(bits >> 52) - 1075 - kUnitExponent;
  if (position < 0) return {mantissa >> -position, 0};  // bits below the unit are zero
  return {mantissa, position};
}

// Adds a finite leaf sum exactly.
inline void add_leaf(NormSum& sum, double leaf) {
  if (leaf == 0) return;
  const LeafSum units = in_units(leaf);
  add_at(sum.limbs, units.mantissa, units.position);
}

inline void add_nonfinite(NormSum& sum, int64_t index) {
  ++sum.nonfinite;
  if (sum.first_nonfinite < 0 || index < sum.first_nonfinite) sum.first_nonfinite = index;
}

// One leaf of up to 256 elements, given by a function from position to float32.
template <class Load>
inline void add_squares_of_leaf(NormSum& sum, int64_t count, int64_t first_index, Load&& load) {
  double lane[kLanes] = {};
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(load(i));
    lane[i % kLanes] += x * x;
    finite = finite && is_finite(load(i));
  }
  if (finite) {
    add_leaf(sum, sum_of_lanes(lane));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!is_finite(load(i))) add_nonfinite(sum, first_index + i);
  }
}

void sum_of_squares(NormSum& sum, const void* data, Format format, int64_t count,
                    int64_t first_index);

}  // namespace outrigger::kernels::reference

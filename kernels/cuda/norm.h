// SPDX-License-Identifier: Apache-2.0
// The exact sum of squares of reference/norm.h, where many warps add to one sum at a time: digits
// of 32 bits in words of 64, which are carried once all have added. So atomic additions do, in any
// order.
#pragma once

#include "kernels/cuda/elements.h"

namespace outrigger::kernels::cuda {

inline constexpr int kDigits = 20;
inline constexpr uint64_t kNone = ~uint64_t{0};

// Begins as NormBlock{}.
struct NormBlock {
  uint64_t digits[kDigits] = {};
  uint64_t nonfinite = 0;
  // Of the first element that is not finite: its index, and in the lower 16 bits 1 + the rank whose
  // contribution was not, or 0.
  uint64_t first = kNone;
};

OTR_DEVICE uint64_t first_of(int64_t index, int rank) {
  return static_cast<uint64_t>(index) << 16 | static_cast<uint64_t>(rank + 1);
}

// What a warp adds to a block, whose digits it has in its lanes until it is done; what is not
// finite is told at once.
struct WarpNorm {
  NormBlock* to;
  PerLane<uint64_t> digits;
};
OTR_DEVICE void begin(WarpNorm& norm, NormBlock* to) {
  norm.to = to;
  each_lane([&](int lane) { norm.digits[lane] = 0; });
}
OTR_DEVICE void end(WarpNorm& norm) {
  each_lane([&](int lane) {
    if (lane < kDigits && norm.digits[lane] != 0) add_to(norm.to->digits[lane], norm.digits[lane]);
  });
}

// A finite sum of a leaf: see reference::add_leaf.
OTR_DEVICE void add_leaf(WarpNorm& norm, double leaf) {
  if (leaf == 0) return;
  const auto [mantissa, position] = reference::in_units(leaf);
  const int shift = position % 32, first = position / 32;
  const uint64_t low = mantissa << shift, high = shift == 0 ? 0 : mantissa >> (64 - shift);
  each_lane([&](int lane) {
    const int place = lane - first;
    norm.digits[lane] += place == 0   ? low & 0xffffffff
                         : place == 1 ? low >> 32
                         : place == 2 ? high
                                      : 0;
  });
}

// x * x is exact: one rounding either way.
OTR_DEVICE double with_square(double sum, double x) {
#if defined(__CUDA_ARCH__)
  return fma(x, x, sum);
#else
  return sum + x * x;
#endif
}

// The squares of a leaf's `count` elements. value(lane, k): element lane + 32 * k. Of one that is
// not finite tell(lane, its number in the leaf).
template <bool kWhole, class Value, class Tell>
OTR_DEVICE void add_squares(WarpNorm& norm, int count, const Value& value, const Tell& tell) {
  PerLane<double> squares;
  each_lane([&](int lane) {
    double own = 0;
    for (int k = 0; k < kPerLane; ++k) {
      const bool is = kWhole || lane + k * kLanes < count;
      if (is) own = with_square(own, static_cast<double>(value(lane, k)));
    }
    squares[lane] = own;
  });
  const double leaf = sum_for_all(squares);
  if (leaf < 0x1p300) {  // the squares of numbers are far below, and only theirs
    add_leaf(norm, leaf);
    return;
  }
  each_lane([&](int lane) {
    for (int k = 0; k < kPerLane; ++k) {  // seldom
      const int i = lane + k * kLanes;
      if (i >= count || reference::is_finite(value(lane, k))) continue;
      add_to(norm.to->nonfinite, 1);
      tell(lane, i);
    }
  });
}

// What of a block belongs to another one, of the same sum.
OTR_DEVICE void merge(NormBlock& into, const NormBlock& from) {
  for (int d = 0; d < kDigits; ++d) {
    if (from.digits[d] != 0) add_to(into.digits[d], from.digits[d]);
  }
  if (from.nonfinite != 0) add_to(into.nonfinite, from.nonfinite);
  if (from.first != kNone) lower_to(into.first, from.first);
}

// Once all have added: the limbs of a NormSum.
OTR_DEVICE void carry(const NormBlock& block, uint64_t* limbs) {
  uint64_t carry = 0;  // below 2^33
  for (int d = 0; d < kDigits; ++d) {
    const uint64_t low = (block.digits[d] & 0xffffffff) + (carry & 0xffffffff);
    if (d % 2 == 0) limbs[d / 2] = 0;
    limbs[d / 2] |= (low & 0xffffffff) << (d % 2 * 32);
    carry = (block.digits[d] >> 32) + (carry >> 32) + (low >> 32);
  }
}
OTR_DEVICE int64_t index_of(const NormBlock& block) {
  return block.first == kNone ? -1 : static_cast<int64_t>(block.first >> 16);
}
OTR_DEVICE int rank_of(const NormBlock& block) {
  return block.first == kNone ? -1 : static_cast<int>(block.first & 0xffff) - 1;
}
inline NormSum carried(const NormBlock& block) {
  NormSum sum;
  carry(block, sum.limbs.data());
  sum.nonfinite = static_cast<int64_t>(block.nonfinite);
  sum.first_nonfinite = index_of(block);
  return sum;
}

}  // namespace outrigger::kernels::cuda

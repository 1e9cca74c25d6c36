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

// A finite sum of a leaf: see reference::add_leaf.
OTR_DEVICE void add_leaf(NormBlock& sum, double leaf) {
  if (leaf == 0) return;
  const auto [mantissa, position] = reference::in_units(leaf);
  const int shift = position % 32;
  uint64_t* const digit = sum.digits + position / 32;
  const uint64_t low = mantissa << shift, high = shift == 0 ? 0 : mantissa >> (64 - shift);
  add_to(digit[0], low & 0xffffffff);
  add_to(digit[1], low >> 32);
  if (high != 0) add_to(digit[2], high);
}

// The squares of a leaf's `count` elements, which lie in the scratch since the last sync().
// Elements that are not finite are told by their index from first_index on; their ranks are told
// elsewhere (fold.h).
template <class TellNonfinite>
OTR_DEVICE void add_squares(NormBlock& sum, const Scratch& scratch, int count,
                            const TellNonfinite& tell) {
  PerLane<double> squares;
  PerLane<bool> finite;
  each_lane([&](int lane) {
    double own = 0;
    bool is = true;
    for (int i = lane; i < count; i += kLanes) {
      const auto x = static_cast<double>(scratch.values[i]);
      own += x * x;
      is = is && reference::is_finite(scratch.values[i]);
    }
    squares[lane] = own;
    finite[lane] = is;
  });
  if (all(finite)) {
    const double leaf = sum_of(squares);
    each_lane([&](int lane) {
      if (lane == 0) add_leaf(sum, leaf);
    });
    return;
  }
  each_lane([&](int lane) {
    for (int i = lane; i < count; i += kLanes) {
      if (reference::is_finite(scratch.values[i])) continue;
      add_to(sum.nonfinite, 1);
      tell(i);
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

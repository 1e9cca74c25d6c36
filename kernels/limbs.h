// SPDX-License-Identifier: Apache-2.0
// One non-negative integer of many bits in 64-bit limbs, the lowest first, always fully carried:
// sums that lose nothing, so that no order of additions shows in them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/reference/formats.h"

namespace outrigger::kernels {

// limbs += value · 2^position, which fits.
inline void add_at(std::span<uint64_t> limbs, uint64_t value, int position) {
  const auto shift = static_cast<unsigned>(position) % 64;
  size_t i = static_cast<size_t>(position) / 64;
  const uint64_t high = shift == 0 ? 0 : value >> (64 - shift);
  uint64_t carry = __builtin_add_overflow(limbs[i], value << shift, &limbs[i]) ? 1 : 0;
  carry = high + carry;
  for (++i; carry != 0 && i < limbs.size(); ++i) {
    carry = __builtin_add_overflow(limbs[i], carry, &limbs[i]) ? 1 : 0;
  }
}

// limbs += from, of the same size.
inline void add_limbs(std::span<uint64_t> limbs, std::span<const uint64_t> from) {
  uint64_t carry = 0;
  for (size_t i = 0; i < limbs.size(); ++i) {
    uint64_t limb = 0;
    const bool first = __builtin_add_overflow(limbs[i], from[i], &limb);
    const bool second = __builtin_add_overflow(limb, carry, &limb);
    limbs[i] = limb;
    carry = first || second ? 1 : 0;
  }
}

// limbs · 2^unit, rounded once to nearest even; normal, or 0, or exact. A device computes it, too.
OTR_ELEMENTWISE double round_limbs(const uint64_t* limbs, int count, int unit) {
  int size = count;
  while (size > 0 && limbs[size - 1] == 0) --size;
  if (size == 0) return 0;
  const int top = size - 1;

  // The 64 bits from the highest set one downwards, and whether anything below them is set.
  int lead = 0;
  while ((limbs[top] << lead) >> 63 == 0) ++lead;
  uint64_t window = limbs[top] << lead;
  bool sticky = false;
  if (top > 0) {
    if (lead > 0) window |= limbs[top - 1] >> (64 - lead);
    sticky = lead > 0 ? limbs[top - 1] << lead != 0 : limbs[top - 1] != 0;
    for (int i = 0; i + 1 < top; ++i) sticky = sticky || limbs[i] != 0;
  }
  // Nearest even at 53 bits: 11 bits of the window go.
  uint64_t mantissa = window >> 11;
  const uint64_t rest = window & 0x7ff;
  const bool up = rest > 0x400 || (rest == 0x400 && (sticky || (mantissa & 1) != 0));
  mantissa += up ? 1 : 0;
  return std::ldexp(static_cast<double>(mantissa), top * 64 - lead + 11 + unit);
}
inline double round_limbs(std::span<const uint64_t> limbs, int unit) {
  return round_limbs(limbs.data(), static_cast<int>(limbs.size()), unit);
}

}  // namespace outrigger::kernels

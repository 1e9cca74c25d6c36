// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/norm.h"

#include <algorithm>
#include <bit>

namespace outrigger::kernels {

void merge(NormSum& into, const NormSum& from) {
  uint64_t carry = 0;
  for (size_t i = 0; i < into.limbs.size(); ++i) {
    uint64_t limb = 0;
    const bool first = __builtin_add_overflow(into.limbs[i], from.limbs[i], &limb);
    const bool second = __builtin_add_overflow(limb, carry, &limb);
    into.limbs[i] = limb;
    carry = first || second ? 1 : 0;
  }
  into.nonfinite += from.nonfinite;
  if (from.first_nonfinite >= 0 &&
      (into.first_nonfinite < 0 || from.first_nonfinite < into.first_nonfinite)) {
    into.first_nonfinite = from.first_nonfinite;
  }
}

double value_of(const NormSum& sum) {
  const auto& limbs = sum.limbs;
  int top = static_cast<int>(limbs.size()) - 1;
  while (top >= 0 && limbs[static_cast<size_t>(top)] == 0) --top;
  if (top < 0) return 0;
  const auto t = static_cast<size_t>(top);

  // The 64 bits from the highest set one downwards, and whether anything below them is set.
  const int lead = std::countl_zero(limbs[t]);
  uint64_t window = limbs[t] << lead;
  bool sticky = false;
  if (t > 0) {
    if (lead > 0) window |= limbs[t - 1] >> (64 - lead);
    sticky = lead > 0 ? limbs[t - 1] << lead != 0 : limbs[t - 1] != 0;
    for (size_t i = 0; i + 1 < t; ++i) sticky = sticky || limbs[i] != 0;
  }
  // Nearest even at 53 bits: 11 bits of the window go.
  uint64_t mantissa = window >> 11;
  const uint64_t rest = window & 0x7ff;
  const bool up = rest > 0x400 || (rest == 0x400 && (sticky || (mantissa & 1) != 0));
  mantissa += up ? 1 : 0;
  return std::ldexp(static_cast<double>(mantissa), top * 64 - lead + 11 + reference::kUnitExponent);
}

namespace reference {

void sum_of_squares(NormSum& sum, const void* data, Format format, int64_t count,
                    int64_t first_index) {
  with_element(format, [&](auto element) {
    using From = decltype(element);
    const auto* x = static_cast<const typename From::Storage*>(data);
    for (int64_t leaf = 0; leaf < count; leaf += kLeaf) {
      add_squares_of_leaf(sum, std::min(kLeaf, count - leaf), first_index + leaf,
                          [&](int64_t i) { return From::load(x[leaf + i]); });
    }
  });
}

}  // namespace reference
}  // namespace outrigger::kernels

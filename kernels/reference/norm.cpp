// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/norm.h"

#include <algorithm>

namespace outrigger::kernels {

void merge(NormSum& into, const NormSum& from) {
  add_limbs(into.limbs, from.limbs);
  into.nonfinite += from.nonfinite;
  if (from.first_nonfinite >= 0 &&
      (into.first_nonfinite < 0 || from.first_nonfinite < into.first_nonfinite)) {
    into.first_nonfinite = from.first_nonfinite;
  }
}

double value_of(const NormSum& sum) { return round_limbs(sum.limbs, reference::kUnitExponent); }

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

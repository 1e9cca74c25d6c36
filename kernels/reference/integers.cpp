// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/integers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"

namespace outrigger::kernels::reference {

void to_integers(void* integers, float* scales, const float* values, int64_t count) {
  auto* const codes = static_cast<int8_t*>(integers);
  for (int64_t first = 0; first < count; first += kLeaf) {
    const int64_t n = std::min(kLeaf, count - first);
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      largest = std::max(largest, bits_of(values[first + i]) & 0x7fffffff);
    }
    const float scale = integer_scale(largest), inverse = 1 / scale;
    scales[first / kLeaf] = scale;
    std::memset(codes + first, 0, kLeaf);
    for (int64_t i = 0; i < n && !std::isnan(scale); ++i) {
      codes[first + i] = static_cast<int8_t>(std::nearbyint(values[first + i] * inverse));
    }
  }
}

void from_integers(float* values, const void* integers, const float* scales, int64_t count) {
  const auto* const codes = static_cast<const int8_t*>(integers);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = canonical(static_cast<float>(codes[i]) * scales[i / kLeaf]);
  }
}

}  // namespace outrigger::kernels::reference

// SPDX-License-Identifier: Apache-2.0
// Values of any format on their way between ranks as 8-bit integers.
#pragma once

#include <algorithm>

#include "kernels/in_blocks.h"

namespace outrigger::kernels {

inline void values_to_integers(void* integers, float* scales, const void* values, Format from,
                               int64_t count) {
  in_floats(values, from, count, [&](const float* source, int64_t first, int64_t n) {
    to_integers(static_cast<int8_t*>(integers) + first, scales + first / kLeaf, source, n);
  });
}

inline void values_from_integers(void* values, Format to, const void* integers, const float* scales,
                                 int64_t count) {
  alignas(64) float wide[kBlockValues];
  for (int64_t first = 0; first < count; first += kBlockValues) {
    const int64_t n = std::min(kBlockValues, count - first);
    auto* const target = reinterpret_cast<float*>(advance(values, first, to));
    const bool is_wide = to == Format::float32;
    from_integers(is_wide ? target : wide, static_cast<const int8_t*>(integers) + first,
                  scales + first / kLeaf, n);
    if (!is_wide) convert(target, to, wide, Format::float32, n);
  }
}

}  // namespace outrigger::kernels

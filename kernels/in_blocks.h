// SPDX-License-Identifier: Apache-2.0
// Values on their way between ranks as Format::block8, with the scales behind the codes.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/fold_origin.h"
#include "kernels/kernels.h"
#include "kernels/update_part.h"

namespace outrigger::kernels {

inline constexpr int64_t kBlockValues =
    4 * kLeaf;  // float32 values of blocks that are made at once

// Gives body the values as float32, (values, first, count): at most kBlockValues at a time, from a
// block's first on.
template <typename Body>
void in_floats(const void* values, Format from, int64_t count, const Body& body) {
  alignas(64) float wide[kBlockValues];
  for (int64_t first = 0; first < count; first += kBlockValues) {
    const int64_t n = std::min(kBlockValues, count - first);
    const auto* source = reinterpret_cast<const float*>(advance(values, first, from));
    if (from != Format::float32) {
      convert(wide, Format::float32, source, from, n);
      source = wide;
    }
    body(source, first, n);
  }
}

// Values to blocks, rounded to nearest; the first element is a block's first.
inline void pack_values(void* codes, float* scales, const void* values, Format from,
                        int64_t count) {
  in_floats(values, from, count, [&](const float* source, int64_t first, int64_t n) {
    pack(advance(codes, first, Format::block8), scales + first / kLeaf, Format::block8, source, n,
         {});
  });
}

// fold_with_origin() of elements [begin, begin + fold.count) of sources that have `elements` each.
inline Origin fold_blocks(Fold fold, std::span<const void* const> sources, int64_t begin,
                          int64_t elements) {
  alignas(64) float sum[kBlockValues], more[kBlockValues];
  const void* const both[] = {sum, more};
  const int64_t count = fold.count, first_index = fold.first_index;
  void* const accumulator = fold.accumulator;
  const auto scales_of = [&](const void* codes) {
    return scales_behind(const_cast<void*>(codes), elements, Format::block8) + begin / kLeaf;
  };
  Origin origin;
  std::vector<std::byte> unused;  // no source is the accumulator
  for (int64_t first = 0; first < count; first += kBlockValues) {
    const int64_t n = std::min(kBlockValues, count - first);
    for (size_t r = 0; r < sources.size(); ++r) {
      unpack(r == 0 ? sum : more, advance(sources[r], begin + first, Format::block8),
             scales_of(sources[r]) + first / kLeaf, Format::block8, n);
      if (r > 0) kernels::fold({both, 2, Format::float32, sum, Format::float32, false, n});
    }
    fold.source_format = Format::float32;
    fold.accumulator = advance(accumulator, first, fold.accumulator_format);
    fold.count = n;
    fold.first_index = first_index + first;
    const Origin found = fold_with_origin(fold, std::span(both, 1), unused);
    if (found.index >= 0 && origin.index < 0) origin = found;
  }
  if (origin.index < 0) return origin;
  // A block that holds an Inf or a NaN is NaN as a whole, and so is its scale.
  const int64_t block = (origin.index - first_index) / kLeaf;
  const auto culprit = std::ranges::find_if(
      sources, [&](const void* codes) { return std::isnan(scales_of(codes)[block]); });
  origin.rank = culprit == sources.end() ? -1 : static_cast<int32_t>(culprit - sources.begin());
  return origin;
}

}  // namespace outrigger::kernels

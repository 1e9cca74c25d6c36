// SPDX-License-Identifier: Apache-2.0
// A fold that also tells whose contribution was not finite.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace outrigger::kernels {

struct Origin {
  int64_t index = -1;  // the first element (as fold.first_index counts) whose sum is not finite
  int32_t rank = -1;   // the first source that is not finite there; −1: only the sum is not
};

// fold() of `sources`. A source that is the accumulator is overwritten by the sum: `kept` is room
// for a copy, which tells afterwards whose Inf it was. Adds to *fold.norm.
inline Origin fold_with_origin(Fold fold, std::span<const void* const> sources,
                               std::vector<std::byte>& kept) {
  const size_t size = size_of(fold.source_format);
  std::vector<const void*> read(sources.begin(), sources.end());
  for (const void*& source : read) {
    if (source != fold.accumulator || read.size() == 1) continue;
    const auto* bytes = static_cast<const std::byte*>(source);
    kept.assign(bytes, bytes + static_cast<size_t>(fold.count) * size);
    source = kept.data();
  }
  NormSum norm;
  NormSum* const total = fold.norm;
  fold.norm = &norm;
  fold.sources = read.data();
  fold.world = static_cast<int32_t>(read.size());
  kernels::fold(fold);
  if (total != nullptr) merge(*total, norm);
  Origin origin{norm.first_nonfinite, -1};
  if (origin.index < 0) return origin;
  const auto at = static_cast<size_t>(origin.index - fold.first_index) * size;
  for (size_t rank = 0; rank < read.size() && origin.rank < 0; ++rank) {
    float value = 0;
    convert(&value, Format::float32, static_cast<const std::byte*>(read[rank]) + at,
            fold.source_format, 1);
    if (!std::isfinite(value)) origin.rank = static_cast<int32_t>(rank);
  }
  return origin;
}

}  // namespace outrigger::kernels

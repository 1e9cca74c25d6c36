// SPDX-License-Identifier: Apache-2.0
// The sum over ranks of one slice, split over the engine's workers.
#pragma once

#include <span>

#include "core/context/workers.h"
#include "kernels/kernels.h"

namespace outrigger::engine {

// The first element (in the flat space) of this rank's slices whose sum is not finite, and the rank
// whose contribution was not; −1 where only the sum was not.
struct Nonfinite {
  int64_t flat = -1;
  int32_t rank = -1;
};
void keep_first(Nonfinite& into, const Nonfinite& other);

struct SliceFold {
  std::span<const void* const> sources;  // one for each rank, in rank order
  kernels::Format source_format;
  void* accumulator;
  kernels::Format accumulator_format;
  bool add;
  int64_t count;
  int64_t flat;  // of element 0
};

// Returns the norm of the stored accumulator; notes in `origin` where a non-finite sum came from.
kernels::NormSum fold_slice(Workers& workers, const SliceFold& slice, Nonfinite& origin);

// The norm of stored values alone.
kernels::NormSum norm_of(Workers& workers, const void* data, kernels::Format format, int64_t count,
                         int64_t flat);

}  // namespace outrigger::engine

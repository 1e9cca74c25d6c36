// SPDX-License-Identifier: Apache-2.0
// reference/fold.h, a leaf to a warp: the sum of the ranks in their order, what is stored of it,
// its squares, and whose contribution was not finite.
#pragma once

#include "kernels/cuda/norm.h"
#include "kernels/reference/fold.h"

namespace outrigger::kernels::cuda {

// first: the leaf's first element. Without sources: only the norm of the accumulator, of any count.
template <class Accumulator>
OTR_DEVICE void fold_leaf(const Fold& fold, int64_t first, Scratch& scratch, NormBlock* norm) {
  const int64_t left = fold.count - first;
  const int count = static_cast<int>(left < kLeaf ? left : kLeaf);
  PerLane<uint64_t> culprits;  // of the lane's first sum that is not finite
  sync();                      // the leaf before has been read
  each_lane([&](int lane) {
    const int64_t at = first + lane * kPerLane;
    const int rest = count - lane * kPerLane;
    const int mine = rest < 0 ? 0 : rest < kPerLane ? rest : kPerLane;
    float stored[kPerLane];
    culprits[lane] = kNone;
    if (fold.world == 0) {
      load<Accumulator>(stored, fold.accumulator, at, mine);
    } else {
      float sum[kPerLane] = {}, part[kPerLane];
      int16_t bad[kPerLane];
      for (int16_t& rank : bad) rank = -1;
      for (int32_t rank = 0; rank < fold.world; ++rank) {
        load(part, fold.sources[rank], fold.source_format, at, mine);
        for (int i = 0; i < kPerLane; ++i) {
          sum[i] = rank == 0 ? part[i] : sum[i] + part[i];
          if (bad[i] < 0 && !reference::is_finite(part[i])) bad[i] = static_cast<int16_t>(rank);
        }
      }
      if (fold.add) {
        load<Accumulator>(part, fold.accumulator, at, mine);
        for (int i = 0; i < kPerLane; ++i) sum[i] = part[i] + sum[i];
      }
      for (int i = 0; i < kPerLane; ++i) stored[i] = reference::canonical(sum[i]);
      store_nearest<Accumulator>(fold.accumulator, at, mine, stored);
      for (int i = kPerLane; i-- > 0;) {
        if (i < mine && !reference::is_finite(stored[i])) {
          culprits[lane] = first_of(fold.first_index + at + i, bad[i]);
        }
      }
    }
    for (int i = 0; i < kPerLane; ++i) scratch.values[lane * kPerLane + i] = stored[i];
  });
  if (norm == nullptr) return;
  sync();
  add_squares(*norm, scratch, count, [&](int i) {
    if (fold.world == 0) lower_to(norm->first, first_of(fold.first_index + first + i, -1));
  });
  if (fold.world == 0) return;
  each_lane([&](int lane) {
    if (culprits[lane] != kNone) lower_to(norm->first, culprits[lane]);
  });
}

}  // namespace outrigger::kernels::cuda

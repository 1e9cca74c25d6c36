// SPDX-License-Identifier: Apache-2.0
// reference/fold.h, a leaf to a warp: the sum of the ranks in their order, what is stored of it,
// its squares, and whose contribution was not finite.
#pragma once

#include "kernels/cuda/norm.h"
#include "kernels/reference/fold.h"

namespace outrigger::kernels::cuda {

// The rank whose contribution to an element was the first that is not finite; -1: only the sum is
// not.
OTR_DEVICE int culprit_of(const Fold& fold, int64_t at) {
  int culprit = -1;
  with_number(fold.source_format, [&](auto e) {
    using E = decltype(e);
    for (int32_t rank = 0; rank < fold.world && culprit < 0; ++rank) {
      const auto* const source = static_cast<const typename E::Storage*>(fold.sources[rank]);
      if (!reference::is_finite(E::load(source[at]))) culprit = rank;
    }
  });
  return culprit;
}

// The sum of the sources in their order; k-th of a lane: element lane + 32 * k of the leaf. One
// source is on its way while the one before is added.
OTR_DEVICE void add_sources(Lane& sum, const Fold& fold, int64_t first, int lane) {
  with_number(fold.source_format, [&](auto e) {
    using E = decltype(e);
    typename E::Storage part[kPerLane], next[kPerLane] = {};
    const auto read_part = [&](typename E::Storage(&to)[kPerLane], int32_t rank) {
      const auto* const mine =
          static_cast<const typename E::Storage*>(fold.sources[rank]) + (first + lane);
      for (int k = 0; k < kPerLane; ++k) to[k] = mine[k * kLanes];
    };
    read_part(part, 0);
    for (int32_t rank = 0; rank < fold.world; ++rank) {
      if (rank + 1 < fold.world) read_part(next, rank + 1);
      for (int k = 0; k < kPerLane; ++k) {
        sum[k] = rank == 0 ? E::load(part[k]) : sum[k] + E::load(part[k]);
        part[k] = next[k];
      }
    }
  });
}

// What a leaf's sum is stored as, or, without sources, what there is.
template <class Accumulator>
using Stored = PerLane<typename Accumulator::Storage[kPerLane]>;
template <class Accumulator, bool kWhole>
OTR_DEVICE void read_sum(Stored<Accumulator>& stored, const Fold& fold, int64_t first) {
  each_lane([&](int lane) {
    const auto* const mine =
        static_cast<const typename Accumulator::Storage*>(fold.accumulator) + (first + lane);
    for (int k = 0; k < kPerLane; ++k) {
      const bool is = kWhole || first + lane + k * kLanes < fold.count;
      stored[lane][k] = is ? mine[k * kLanes] : typename Accumulator::Storage{};
    }
  });
}

// The norm of a leaf's sum; first: the leaf's first element. kWhole: it has all its elements.
template <class Accumulator, bool kWhole>
OTR_DEVICE void add_norm(WarpNorm& norm, Stored<Accumulator>& stored, const Fold& fold,
                         int64_t first) {
  const int count = kWhole ? static_cast<int>(kLeaf) : static_cast<int>(fold.count - first);
  add_squares<kWhole>(
      norm, count, [&](int lane, int k) { return Accumulator::load(stored[lane][k]); },
      [&](int, int i) {
        lower_to(norm.to->first,
                 first_of(fold.first_index + first + i, culprit_of(fold, first + i)));
      });
}

// A source may be the accumulator, so that is written at the end.
template <class Accumulator>
OTR_DEVICE void fold_leaf(const Fold& fold, int64_t first, bool has_norm, WarpNorm& norm) {
  Stored<Accumulator> stored;
  each_lane([&](int lane) {
    const auto* const mine =
        static_cast<const typename Accumulator::Storage*>(fold.accumulator) + (first + lane);
    Lane sum = {};
    add_sources(sum, fold, first, lane);
    for (int k = 0; k < kPerLane; ++k) {
      if (fold.add) sum[k] = Accumulator::load(mine[k * kLanes]) + sum[k];
      stored[lane][k] = rounded_canonical<Accumulator>(reference::canonical(sum[k]));
    }
  });
  if (has_norm) {
    add_norm<Accumulator, true>(norm, stored, fold, first);
    sync();  // all culprits have been looked for
  }
  each_lane([&](int lane) {
    auto* const mine =
        static_cast<typename Accumulator::Storage*>(fold.accumulator) + (first + lane);
    for (int k = 0; k < kPerLane; ++k) mine[k * kLanes] = stored[lane][k];
  });
}

// Without sources: only the norm of the accumulator, of any count. One leaf is on its way while the
// one before is added.
template <class Accumulator>
OTR_DEVICE void norm_of_warp(const Fold& fold, int64_t warp, int64_t warps, WarpNorm& norm) {
  const int64_t whole = fold.count / kLeaf;
  Stored<Accumulator> stored, next;
  if (warp < whole) read_sum<Accumulator, true>(stored, fold, warp * kLeaf);
  for (int64_t leaf = warp; leaf < whole; leaf += warps) {
    if (leaf + warps < whole) read_sum<Accumulator, true>(next, fold, (leaf + warps) * kLeaf);
    add_norm<Accumulator, true>(norm, stored, fold, leaf * kLeaf);
    each_lane([&](int lane) {
      for (int k = 0; k < kPerLane; ++k) stored[lane][k] = next[lane][k];
    });
  }
  if (whole * kLeaf < fold.count && whole % warps == warp) {
    read_sum<Accumulator, false>(stored, fold, whole * kLeaf);
    add_norm<Accumulator, false>(norm, stored, fold, whole * kLeaf);
  }
}

// All leaves of one of the warps; of_block: added to, if there is a norm.
template <class Accumulator>
OTR_DEVICE void fold_of_warp(const Fold& fold, int64_t warp, int64_t warps, bool has_norm,
                             NormBlock& of_block) {
  WarpNorm norm;
  begin(norm, &of_block);
  if (fold.world == 0) {
    if (has_norm) norm_of_warp<Accumulator>(fold, warp, warps, norm);
  } else {
    for (int64_t leaf = warp; leaf < fold.count / kLeaf; leaf += warps) {
      fold_leaf<Accumulator>(fold, leaf * kLeaf, has_norm, norm);
    }
  }
  if (has_norm) end(norm);
}

}  // namespace outrigger::kernels::cuda

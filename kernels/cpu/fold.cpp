// SPDX-License-Identifier: Apache-2.0
// Reduction, accumulation and norm in one pass, vector form of reference/fold.h.
#include "kernels/reference/fold.h"

#include "kernels/cpu/targets.h"
#include "kernels/reference/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fold.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

// One pair of vectors over all ranks, accumulated and stored; returns what was stored.
template <class Accumulator, class Source>
HWY_INLINE Pair fold_pair(const Fold& fold, typename Accumulator::Storage* accumulator, int64_t i) {
  const auto load = [&](int32_t rank) HWY_ATTR {
    return Source::load(static_cast<const typename Source::Storage*>(fold.sources[rank]) + i);
  };
  Pair sum = load(0);
  for (int32_t rank = 1; rank < fold.world; ++rank) {
    const Pair x = load(rank);
    sum = {hn::Add(sum.lo, x.lo), hn::Add(sum.hi, x.hi)};
  }
  if (fold.add) {
    const Pair old = Accumulator::load(accumulator + i);
    sum = {hn::Add(old.lo, sum.lo), hn::Add(old.hi, sum.hi)};
  }
  sum = {canonical(sum.lo), canonical(sum.hi)};
  Accumulator::store(sum, accumulator + i);
  return Accumulator::rounded(sum);
}

template <class Accumulator, class Source>
HWY_INLINE void fold_leaves(const Fold& fold) {
  auto* accumulator = static_cast<typename Accumulator::Storage*>(fold.accumulator);
  for (int64_t leaf = 0; leaf < fold.count; leaf += kLeaf) {
    LaneSums lanes;
    for (int64_t row = 0; row < kLeaf; row += kRow) {
      for (int pair = 0; pair < kPairsPerRow; ++pair) {
        const Pair stored =
            fold_pair<Accumulator, Source>(fold, accumulator, leaf + row + pair * kPair);
        if (fold.norm != nullptr) lanes.add(pair, stored);
      }
    }
    if (fold.norm != nullptr) {
      add_leaf_sum(*fold.norm, lanes.sum(), accumulator + leaf, fold.accumulator_format,
                   fold.first_index + leaf);
    }
  }
}

void fold(const Fold& fold) {
  bool done = false;
  with_format(fold.accumulator_format, [&](auto a) HWY_ATTR {
    done = with_format(fold.source_format,
                       [&](auto s) HWY_ATTR { fold_leaves<decltype(a), decltype(s)>(fold); });
  });
  if (!done) reference::fold(fold);
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace outrigger::kernels::cpu {
OTR_EXPORT(FoldFunction, fold_for, fold)
}  // namespace outrigger::kernels::cpu
#endif

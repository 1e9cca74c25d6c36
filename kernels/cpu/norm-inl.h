// SPDX-License-Identifier: Apache-2.0
// A leaf's 32 float64 lanes in vectors: element i adds its square to lane i mod 32
// (reference/norm.h).

#if defined(OTR_KERNELS_CPU_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OTR_KERNELS_CPU_NORM_INL_H_
#undef OTR_KERNELS_CPU_NORM_INL_H_
#else
#define OTR_KERNELS_CPU_NORM_INL_H_
#endif

#include "kernels/cpu/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;

// 32 elements: one of each lane.
inline constexpr int64_t kRow = reference::kLanes;
inline constexpr int kPairsPerRow = static_cast<int>(kRow / kPair);
static_assert(kPairsPerRow * kPair == kRow);

struct LaneSums {
  // Four vectors of float64 hold the lanes of one pair of float32.
  VD lane[4 * kPairsPerRow];

  HWY_INLINE LaneSums() {
    for (auto& l : lane) l = hn::Zero(DD{});
  }

  // The pair at position `pair` of its row.
  HWY_INLINE void add(int pair, Pair x) {
    VD* l = lane + 4 * pair;
    add_half(l[0], hn::LowerHalf(x.lo));
    add_half(l[1], hn::UpperHalf(hn::Half<DF>{}, x.lo));
    add_half(l[2], hn::LowerHalf(x.hi));
    add_half(l[3], hn::UpperHalf(hn::Half<DF>{}, x.hi));
  }

  HWY_INLINE double sum() const {
    // Steps 16 and 8 of the tree join whole vectors where vectors are at most 8 lanes.
    double all[reference::kLanes];
    constexpr int kCount = 4 * kPairsPerRow;
    VD half[kCount / 2], quarter[kCount / 4];
    for (int i = 0; i < kCount / 2; ++i) half[i] = hn::Add(lane[i], lane[i + kCount / 2]);
    for (int i = 0; i < kCount / 4; ++i) quarter[i] = hn::Add(half[i], half[i + kCount / 4]);
    for (int i = 0; i < kCount / 4; ++i) {
      hn::StoreU(quarter[i], DD{}, all + i * static_cast<int>(HWY_LANES(double)));
    }
    for (int step = reference::kLanes / 8; step > 0; step /= 2) {
      for (int l = 0; l < step; ++l) all[l] += all[l + step];
    }
    return all[0];
  }

 private:
  static HWY_INLINE void add_half(VD& sum, hn::Vec<hn::Half<DF>> x) {
    const VD wide = hn::PromoteTo(DD{}, x);
    sum = hn::MulAdd(wide, wide, sum);  // the product is exact, so this is one rounding either way
  }
};

// Takes a leaf's sum, or counts its non-finite elements; `leaf` is what the sum was made of.
template <class Storage>
HWY_INLINE void add_leaf_sum(NormSum& norm, double sum, const Storage* leaf, Format format,
                             int64_t first_index) {
  constexpr double kInfinity = __builtin_inf();
  if (HWY_LIKELY(sum < kInfinity)) {  // false for NaN
    reference::add_leaf(norm, sum);
  } else {
    reference::sum_of_squares(norm, leaf, format, kLeaf, first_index);
  }
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target

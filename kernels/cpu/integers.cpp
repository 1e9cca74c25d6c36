// SPDX-License-Identifier: Apache-2.0
// 8-bit integers, vector form of reference/integers.h. Whole leaves here; the last elements go
// through the oracle, which has the same bits.
#include "kernels/reference/integers.h"

#include <cstring>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/integers.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

using DI8 = hn::Rebind<int8_t, DF>;

HWY_NOINLINE float leaf_to_integers(int8_t* codes, const float* values) {
  const DF df;
  const DI di;
  VI most = hn::Zero(di);
  for (int64_t i = 0; i < kLeaf; i += kVector) {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(df, values + i))));
  }
  const auto largest = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most)));
  const float scale = reference::integer_scale(largest);
  if (reference::is_nan(scale)) {
    std::memset(codes, 0, kLeaf);
    return scale;
  }
  const VF inverse = hn::Set(df, 1 / scale);
  for (int64_t i = 0; i < kLeaf; i += kVector) {
    const VI code = hn::NearestInt(hn::Mul(hn::LoadU(df, values + i), inverse));
    hn::StoreU(hn::DemoteTo(DI8{}, code), DI8{}, codes + i);
  }
  return scale;
}

void to_integers(void* integers, float* scales, const float* values, int64_t count) {
  auto* const codes = static_cast<int8_t*>(integers);
  int64_t done = 0;
  for (; done + kLeaf <= count; done += kLeaf) {
    scales[done / kLeaf] = leaf_to_integers(codes + done, values + done);
  }
  reference::to_integers(codes + done, scales + done / kLeaf, values + done, count - done);
}

void from_integers(float* values, const void* integers, const float* scales, int64_t count) {
  const DF df;
  const auto* const codes = static_cast<const int8_t*>(integers);
  int64_t done = 0;
  for (; done + kLeaf <= count; done += kLeaf) {
    const VF scale = hn::Set(df, scales[done / kLeaf]);
    for (int64_t i = done; i < done + kLeaf; i += kVector) {
      const VI code = hn::PromoteTo(DI{}, hn::LoadU(DI8{}, codes + i));
      hn::StoreU(canonical(hn::Mul(hn::ConvertTo(df, code), scale)), df, values + i);
    }
  }
  reference::from_integers(values + done, codes + done, scales + done / kLeaf, count - done);
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace outrigger::kernels::cpu {
OTR_EXPORT(ToIntegersFunction, to_integers_for, to_integers)
OTR_EXPORT(FromIntegersFunction, from_integers_for, from_integers)
}  // namespace outrigger::kernels::cpu
#endif

// SPDX-License-Identifier: Apache-2.0
// 8-bit blocks to float32 and back, a leaf at a time; bits as in reference/block8.h.

#if defined(OTR_KERNELS_CPU_BLOCK8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OTR_KERNELS_CPU_BLOCK8_INL_H_
#undef OTR_KERNELS_CPU_BLOCK8_INL_H_
#else
#define OTR_KERNELS_CPU_BLOCK8_INL_H_
#endif

#include "kernels/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

using D8 = hn::Rebind<uint8_t, DF>;
using MI = hn::Mask<DI>;

// A block's codes to float32; all NaN where its scale is one.
template <bool kPositive>
class Decoder8 {
 public:
  explicit HWY_INLINE Decoder8(const uint8_t* block) {
    float factor = 0;
    std::memcpy(&factor, block, sizeof factor);
    scale_ = hn::Set(DF{}, factor);
  }
  HWY_INLINE VF load(const uint8_t* codes) const {
    const DF df;
    const DI di;
    const VF least = hn::Set(df, C::kLeast);
    const VI normal = hn::Set(di, int32_t{C::kLeastNormalCode});
    const VI offset = hn::Set(di, static_cast<int32_t>(C::kOffset));
    const VI stored = hn::PromoteTo(di, hn::LoadU(D8{}, codes));
    const VI code = kPositive ? stored : hn::And(stored, hn::Set(di, 0x7f));
    const MI small = hn::Lt(code, normal);
    const VI moved = hn::Add(code, hn::IfThenElseZero(small, normal));
    const VF y = hn::BitCast(df, hn::Add(hn::ShiftLeft<C::kCut>(moved), offset));
    VF x = hn::Mul(hn::Sub(y, hn::IfThenElseZero(hn::RebindMask(df, small), least)), scale_);
    if (!kPositive) {
      const VI sign = hn::And(hn::ShiftLeft<24>(stored), hn::Set(di, INT32_MIN));
      x = hn::Xor(x, hn::BitCast(df, sign));
    }
    return x;
  }
  HWY_INLINE Pair load_pair(const uint8_t* codes) const {
    return {load(codes), load(codes + kVector)};
  }

 private:
  using C = reference::Code8<kPositive>;
  VF scale_;
};

template <bool kPositive>
HWY_NOINLINE void unpack_leaf(float* values, const uint8_t* block) {
  const DF df;
  const Decoder8<kPositive> decoder(block);
  const uint8_t* codes = block + sizeof(float);
  for (int64_t i = 0; i < kLeaf; i += kVector) {
    hn::StoreU(canonical(decoder.load(codes + i)), df, values + i);
  }
}

HWY_INLINE VI magnitude_bits(VF x) { return hn::BitCast(DI{}, hn::Abs(x)); }

// `most`: the largest of each lane's magnitudes. `random`: a leaf's numbers, or null for nearest
// even.
template <bool kPositive>
HWY_NOINLINE void pack_scaled(uint8_t* block, const float* values, VI most,
                              const uint16_t* random) {
  using C = reference::Code8<kPositive>;
  const DF df;
  const DI di;
  const VI magnitude_mask = hn::Set(di, INT32_MAX);
  const auto largest = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most)));
  uint8_t* codes = block + sizeof(float);
  if (largest >= 0x7f800000) {
    std::memcpy(block, &reference::kCanonicalNan, sizeof(float));
    std::memset(codes, 0, kLeaf);
    return;
  }
  const int32_t exponent = reference::block_exponent(largest);
  const float scale = reference::power_of_two(exponent);
  std::memcpy(block, &scale, sizeof scale);

  const VF inverse = hn::Set(df, reference::power_of_two(-exponent));
  const VF least = hn::Set(df, C::kLeast);
  const VI least_bits = hn::BitCast(di, least), last = hn::Set(di, int32_t{C::kLastCode});
  const VI normal = hn::Set(di, int32_t{C::kLeastNormalCode}), one = hn::Set(di, 1);
  const VI offset = hn::Set(di, static_cast<int32_t>(C::kOffset >> C::kCut));
  for (int64_t i = 0; i < kLeaf; i += kVector) {
    const VF x = hn::LoadU(df, values + i);
    const VI magnitude = hn::And(hn::BitCast(di, hn::Mul(x, inverse)), magnitude_mask);
    const MI small = hn::Lt(magnitude, least_bits);
    const VF aligned =
        hn::Add(hn::BitCast(df, magnitude), hn::IfThenElseZero(hn::RebindMask(df, small), least));
    const VI bits = hn::BitCast(di, aligned);
    VI increment;
    if (random != nullptr) {
      const hn::Rebind<uint16_t, DF> d16;
      increment = hn::ShiftLeft<4>(hn::PromoteTo(di, hn::LoadU(d16, random + i)));
    } else {
      increment = hn::Add(hn::And(hn::ShiftRight<20>(bits), one), hn::Set(di, 0x7ffff));
    }
    VI code = hn::Sub(hn::ShiftRight<C::kCut>(hn::Add(bits, increment)), offset);
    code = hn::Min(hn::Sub(code, hn::IfThenElseZero(small, normal)), last);
    if (kPositive) {
      const VI given = hn::And(hn::BitCast(di, x), magnitude_mask);  // may vanish when scaled
      code = hn::Max(code, hn::Min(given, one));
    } else {
      const VI sign = hn::And(hn::ShiftRight<24>(hn::BitCast(di, x)), hn::Set(di, 0x80));
      code = hn::Or(code, sign);
    }
    hn::StoreU(hn::TruncateTo(D8{}, hn::BitCast(DU{}, code)), D8{}, codes + i);
  }
}

template <bool kPositive>
HWY_INLINE void pack_leaf(uint8_t* block, const float* values, const uint16_t* random) {
  VI most = hn::Zero(DI{});
  for (int64_t i = 0; i < kLeaf; i += kVector) {
    most = hn::Max(most, magnitude_bits(hn::LoadU(DF{}, values + i)));
  }
  pack_scaled<kPositive>(block, values, most, random);
}

HWY_INLINE void unpack_blocks(float* values, const void* blocks, Format format, int64_t count) {
  const auto* block = static_cast<const uint8_t*>(blocks);
  const auto one = format == Format::block8 ? unpack_leaf<false> : unpack_leaf<true>;
  for (; count >= kLeaf; count -= kLeaf, values += kLeaf, block += kBlockBytes) one(values, block);
  reference::unpack(values, block, format, count);
}

HWY_INLINE void pack_blocks(void* blocks, Format format, const float* values, int64_t count,
                            const BlockRounding& rounding) {
  alignas(64) uint16_t numbers[reference::kNumbers], random[kLeaf];
  BlockRounding r = rounding;
  auto* block = static_cast<uint8_t*>(blocks);
  const auto one = format == Format::block8 ? pack_leaf<false> : pack_leaf<true>;
  for (; count >= kLeaf; count -= kLeaf, values += kLeaf, block += kBlockBytes) {
    const bool stochastic = r.rounding == Rounding::stochastic;
    if (stochastic) {
      random_numbers(r.key, r.first_element, r.step, numbers);
      draw_leaf(r.draw, numbers, random);
    }
    one(block, values, stochastic ? random : nullptr);
    r.first_element += kLeaf;
  }
  reference::pack(block, format, values, count, r);
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target

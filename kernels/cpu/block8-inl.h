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
  explicit HWY_INLINE Decoder8(float scale) : scale_(hn::Set(DF{}, scale)) {}
  HWY_INLINE VF load(const uint8_t* codes) const {
    return kPositive ? positive(codes) : any_sign(codes);
  }
  HWY_INLINE Pair load_pair(const uint8_t* codes) const {
    return {load(codes), load(codes + kVector)};
  }

 private:
  using C = reference::Code8<kPositive>;

  // A code of block8 is a float16 without its upper exponent bit and its last seven bits.
  HWY_INLINE VF any_sign(const uint8_t* codes) const {
    const hn::Rebind<int8_t, DF> d8;
    const hn::Rebind<int16_t, DF> d16;
    const hn::Rebind<hwy::float16_t, DF> half;
    const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes)));
    const auto bits = hn::And(hn::ShiftLeft<7>(wide), hn::Set(d16, int16_t{-0x4001}));
    return hn::Mul(hn::PromoteTo(DF{}, hn::BitCast(half, bits)), scale_);
  }
  HWY_INLINE VF positive(const uint8_t* codes) const {
    const DF df;
    const DI di;
    const VI normal = hn::Set(di, int32_t{C::kLeastNormalCode});
    const VI code = hn::PromoteTo(di, hn::LoadU(D8{}, codes));
    const MI small = hn::Lt(code, normal);
    const VI moved = hn::IfThenElse(small, hn::Add(code, normal), code);
    const VI offset = hn::Set(di, static_cast<int32_t>(C::kOffset));
    const VF y = hn::BitCast(df, hn::Add(hn::ShiftLeft<C::kCut>(moved), offset));
    const VF least = hn::Set(df, C::kLeast);
    return hn::Mul(hn::IfThenElse(hn::RebindMask(df, small), hn::Sub(y, least), y), scale_);
  }

  VF scale_;
};

template <bool kPositive>
HWY_NOINLINE void unpack_leaf(float* values, const uint8_t* codes, float scale) {
  const DF df;
  const Decoder8<kPositive> decoder(scale);
  for (int64_t i = 0; i < kLeaf; i += kVector) {
    hn::StoreU(canonical(decoder.load(codes + i)), df, values + i);
  }
}

HWY_INLINE VI magnitude_bits(VF x) { return hn::BitCast(DI{}, hn::Abs(x)); }

// A leaf's codes by reference/block8.h's formula. kInRange: no value is beyond the last code.
template <bool kPositive, bool kInRange>
HWY_INLINE void encode_leaf(uint8_t* codes, const float* values, float inverse_scale,
                            const uint16_t* random) {
  using C = reference::Code8<kPositive>;
  const DF df;
  const DI di;
  const hn::Rebind<uint16_t, DF> d16;
  const VF inverse = hn::Set(df, inverse_scale), least = hn::Set(df, C::kLeast);
  const VI one = hn::Set(di, 1);
  constexpr auto kOffset = static_cast<int32_t>(C::kOffset >> C::kCut);
  const VI normal_offset = hn::Set(di, kOffset);
  const VI small_offset = hn::Set(di, kOffset + int32_t{C::kLeastNormalCode});
  for (int64_t i = 0; i < kLeaf; i += kVector) {
    const VF x = hn::LoadU(df, values + i);
    const VF magnitude = hn::Abs(hn::Mul(x, inverse));
    const MF small = hn::Lt(magnitude, least);
    const VI bits = hn::BitCast(di, hn::IfThenElse(small, hn::Add(magnitude, least), magnitude));
    VI increment;
    if (random != nullptr) {
      increment = hn::ShiftLeft<4>(hn::PromoteTo(di, hn::LoadU(d16, random + i)));
    } else {
      increment = hn::Add(hn::And(hn::ShiftRight<20>(bits), one), hn::Set(di, 0x7ffff));
    }
    VI code = hn::Sub(hn::ShiftRight<C::kCut>(hn::Add(bits, increment)),
                      hn::IfThenElse(hn::RebindMask(di, small), small_offset, normal_offset));
    if (!kInRange) code = hn::Min(code, hn::Set(di, int32_t{C::kLastCode}));
    if (kPositive) {
      const VI given = hn::BitCast(di, hn::Abs(x));  // may vanish when scaled
      code = hn::Max(code, hn::Min(given, one));
    } else {
      const VI sign = hn::And(hn::ShiftRight<24>(hn::BitCast(di, x)), hn::Set(di, 0x80));
      code = hn::Or(code, sign);
    }
    hn::StoreU(hn::TruncateTo(D8{}, hn::BitCast(DU{}, code)), D8{}, codes + i);
  }
}

// The scale. `most`: the largest of each lane's magnitudes. `random`: a leaf's numbers, or null for
// nearest even.
template <bool kPositive>
HWY_NOINLINE float pack_scaled(uint8_t* codes, const float* values, VI most,
                               const uint16_t* random) {
  const auto largest = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(DI{}, most)));
  if (largest >= 0x7f800000) {
    std::memset(codes, 0, kLeaf);
    return reference::float_of(reference::kCanonicalNan);
  }
  const int32_t exponent = reference::block_exponent(largest);
  const float inverse = reference::power_of_two(-exponent);
  if (exponent == reference::kLastScaleExponent) {  // the scale that such values want is beyond it
    encode_leaf<kPositive, false>(codes, values, inverse, random);
  } else if (random == nullptr) {
    encode_leaf<kPositive, true>(codes, values, inverse, nullptr);
  } else {
    encode_leaf<kPositive, true>(codes, values, inverse, random);
  }
  return reference::power_of_two(exponent);
}

template <bool kPositive>
HWY_INLINE float pack_leaf(uint8_t* codes, const float* values, const uint16_t* random) {
  VI most = hn::Zero(DI{});
  for (int64_t i = 0; i < kLeaf; i += kVector) {
    most = hn::Max(most, magnitude_bits(hn::LoadU(DF{}, values + i)));
  }
  return pack_scaled<kPositive>(codes, values, most, random);
}

HWY_INLINE void unpack_blocks(float* values, const void* codes, const float* scales, Format format,
                              int64_t count) {
  const auto* block = static_cast<const uint8_t*>(codes);
  const auto one = format == Format::block8 ? unpack_leaf<false> : unpack_leaf<true>;
  for (; count >= kLeaf; count -= kLeaf, values += kLeaf, block += kLeaf) {
    one(values, block, *scales++);
  }
  reference::unpack(values, block, scales, format, count);
}

HWY_INLINE void pack_blocks(void* codes, float* scales, Format format, const float* values,
                            int64_t count, const BlockRounding& rounding) {
  alignas(64) uint16_t numbers[reference::kNumbers], random[kLeaf];
  BlockRounding r = rounding;
  auto* block = static_cast<uint8_t*>(codes);
  const auto one = format == Format::block8 ? pack_leaf<false> : pack_leaf<true>;
  for (; count >= kLeaf; count -= kLeaf, values += kLeaf, block += kLeaf) {
    const bool stochastic = r.rounding == Rounding::stochastic;
    if (stochastic) {
      random_numbers(r.key, r.first_element, r.step, numbers);
      draw_leaf(r.draw, numbers, random);
    }
    *scales++ = one(block, values, stochastic ? random : nullptr);
    r.first_element += kLeaf;
  }
  reference::pack(block, scales, format, values, count, r);
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target

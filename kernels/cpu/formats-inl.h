// SPDX-License-Identifier: Apache-2.0
// Two float32 vectors at a time, loaded from and stored to each storage format. Compiled once per
// instruction set; bits as in reference/formats.h.
//
// A pair of bfloat16 vectors fits one 16-bit vector, so a store packs two vectors by one permute.

#if defined(OTR_KERNELS_CPU_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OTR_KERNELS_CPU_FORMATS_INL_H_
#undef OTR_KERNELS_CPU_FORMATS_INL_H_
#else
#define OTR_KERNELS_CPU_FORMATS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::Repartition<uint32_t, DF>;
using DI = hn::Repartition<int32_t, DF>;
using DU16 = hn::Repartition<uint16_t, DF>;
using DHalf16 = hn::Rebind<uint16_t, DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using VI = hn::Vec<DI>;
using MF = hn::Mask<DF>;

inline constexpr int64_t kVector = static_cast<int64_t>(HWY_LANES(float));
inline constexpr int64_t kPair = 2 * kVector;

struct Pair {
  // Written out: gcc compiles implicit constructors without this file's instruction set, and those
  // of NEON's vectors are not trivial.
  HWY_INLINE Pair() {}
  HWY_INLINE Pair(VF low, VF high) : lo(low), hi(high) {}

  VF lo, hi;
};
struct BitsPair {
  VU lo, hi;
};

HWY_INLINE VF canonical(VF x) {
  const DF df;
  const DU du;
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(df, hn::Set(du, 0x7fc00000)), x);
}

// What nearest-even adds to the bits before they are cut off. Overflows for some NaNs only.
HWY_INLINE VU nearest_increment(VU bits) {
  const DU du;
  const VU below_half = hn::Set(du, 0x7fff);
#if HWY_TARGET == HWY_AVX3
  // A test into a mask register instead of shift and mask: three instructions to four.
  const auto odd = hn::TestBit(bits, hn::Set(du, 0x10000));
  return hn::IfThenElse(odd, hn::Set(du, 0x8000), below_half);
#else
  return hn::Add(hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1)), below_half);
#endif
}

HWY_INLINE VU bits_of(VF x) { return hn::BitCast(DU{}, x); }

// float32 bits whose upper half is the bfloat16 nearest to x; x is not a NaN, or the canonical one.
HWY_INLINE VU nearest_bfloat16(VF x) {
  const VU bits = bits_of(x);
  return hn::Add(bits, nearest_increment(bits));
}

// Upper halves of 2 x kVector words, in order.
HWY_INLINE void store_upper_halves(BitsPair bits, uint16_t* to) {
  const DU16 d16;
  hn::StoreU(hn::ConcatOdd(d16, hn::BitCast(d16, bits.hi), hn::BitCast(d16, bits.lo)), d16, to);
}

// Each storage format: load a pair; store a pair whose NaNs are canonical.
struct Float32 {
  using Storage = float;
  static HWY_INLINE Pair load(const float* from) {
    const DF df;
    return {hn::LoadU(df, from), hn::LoadU(df, from + kVector)};
  }
  static HWY_INLINE void store(Pair x, float* to) {
    const DF df;
    hn::StoreU(x.lo, df, to);
    hn::StoreU(x.hi, df, to + kVector);
  }
  // The value that store() leaves in memory, for the norm.
  static HWY_INLINE Pair rounded(Pair x) { return x; }
};

struct BFloat16 {
  using Storage = uint16_t;
  static HWY_INLINE Pair load(const uint16_t* from) {
    const BitsPair low = load_words(from);
    const DF df;
    return {hn::BitCast(df, hn::ShiftLeft<16>(low.lo)), hn::BitCast(df, hn::ShiftLeft<16>(low.hi))};
  }
  // 16-bit numbers as 32-bit words, in the order of load().
  static HWY_INLINE BitsPair load_words(const uint16_t* from) {
    const DHalf16 dh;
    const DU du;
    return {hn::PromoteTo(du, hn::LoadU(dh, from)),
            hn::PromoteTo(du, hn::LoadU(dh, from + kVector))};
  }
  static HWY_INLINE BitsPair words(hn::Vec<DU16> numbers) {
    const DU du;
    return {hn::PromoteTo(du, hn::LowerHalf(numbers)),
            hn::PromoteTo(du, hn::UpperHalf(DHalf16{}, numbers))};
  }
  static HWY_INLINE void store(Pair x, uint16_t* to) {
    store_bits({nearest_bfloat16(x.lo), nearest_bfloat16(x.hi)}, to);
  }
  static HWY_INLINE void store_bits(BitsPair bits, uint16_t* to) { store_upper_halves(bits, to); }
  static HWY_INLINE Pair rounded(Pair x) {
    return {upper_half(nearest_bfloat16(x.lo)), upper_half(nearest_bfloat16(x.hi))};
  }
  static HWY_INLINE VF upper_half(VU bits) {
    return hn::BitCast(DF{}, hn::And(bits, hn::Set(DU{}, 0xffff0000)));
  }
};

// bfloat16 with the even elements in `lo` and the odd ones in `hi`: no permute at all. Only where
// every array that takes part is bfloat16 and nothing depends on the order of elements.
struct BFloat16EvenOdd {
  using Storage = uint16_t;
  static HWY_INLINE Pair load(const uint16_t* from) {
    const VU both = load_both(from);
    return {hn::BitCast(DF{}, hn::ShiftLeft<16>(both)), BFloat16::upper_half(both)};
  }
  static HWY_INLINE BitsPair words(hn::Vec<DU16> numbers) {
    const VU both = hn::BitCast(DU{}, numbers);
    return {hn::And(both, hn::Set(DU{}, 0xffff)), hn::ShiftRight<16>(both)};
  }
  static HWY_INLINE void store_bits(BitsPair bits, uint16_t* to) {
    const VU odd = hn::And(bits.hi, hn::Set(DU{}, 0xffff0000));
    hn::StoreU(hn::BitCast(DU16{}, hn::Or(hn::ShiftRight<16>(bits.lo), odd)), DU16{}, to);
  }

 private:
  static HWY_INLINE VU load_both(const uint16_t* from) {
    return hn::BitCast(DU{}, hn::LoadU(DU16{}, from));
  }
};

// A float32 in two arrays; see reference/split.h. The stored values are those given.
struct Split {
  using Storage = uint16_t;
  static HWY_INLINE Pair load(const uint16_t* published, const uint16_t* remainder) {
    const BitsPair high = BFloat16::load_words(published);
    return {joined(high.lo, rest(remainder)), joined(high.hi, rest(remainder + kVector))};
  }
  static HWY_INLINE void store(Pair x, uint16_t* published, uint16_t* remainder) {
    const DU16 d16;
    const VU lo = bits_of(x.lo), hi = bits_of(x.hi), half = hn::Set(DU{}, 0x8000);
    store_upper_halves({hn::Add(lo, half), hn::Add(hi, half)}, published);
    hn::StoreU(hn::ConcatEven(d16, hn::BitCast(d16, hi), hn::BitCast(d16, lo)), d16, remainder);
  }

 private:
  static HWY_INLINE VI rest(const uint16_t* from) {
    const hn::Rebind<int16_t, DF> d16;
    return hn::PromoteTo(DI{}, hn::LoadU(d16, reinterpret_cast<const int16_t*>(from)));
  }
  static HWY_INLINE VF joined(VU high, VI low) {
    return hn::BitCast(DF{}, hn::Add(hn::ShiftLeft<16>(high), hn::BitCast(DU{}, low)));
  }
};

// The same with the even elements in `lo` and the odd ones in `hi`, as BFloat16EvenOdd.
struct SplitEvenOdd {
  using Storage = uint16_t;
  static HWY_INLINE Pair load(const uint16_t* published, const uint16_t* remainder) {
    const DU16 d16;
    const DI di;
    const VU high = hn::BitCast(DU{}, hn::LoadU(d16, published));
    const VI low = hn::BitCast(di, hn::LoadU(d16, remainder));
    const VI even = hn::ShiftRight<16>(hn::ShiftLeft<16>(low)), odd = hn::ShiftRight<16>(low);
    const VU upper = hn::And(high, hn::Set(DU{}, 0xffff0000));
    return {hn::BitCast(DF{}, hn::Add(hn::ShiftLeft<16>(high), hn::BitCast(DU{}, even))),
            hn::BitCast(DF{}, hn::Add(upper, hn::BitCast(DU{}, odd)))};
  }
  static HWY_INLINE void store(Pair x, uint16_t* published, uint16_t* remainder) {
    const VU lo = bits_of(x.lo), hi = bits_of(x.hi), half = hn::Set(DU{}, 0x8000);
    BFloat16EvenOdd::store_bits({hn::Add(lo, half), hn::Add(hi, half)}, published);
    const VU both = hn::Or(hn::And(lo, hn::Set(DU{}, 0xffff)), hn::ShiftLeft<16>(hi));
    hn::StoreU(hn::BitCast(DU16{}, both), DU16{}, remainder);
  }
};

template <class Weight>
inline constexpr bool kIsSplit =
    std::is_same_v<Weight, Split> || std::is_same_v<Weight, SplitEvenOdd>;

struct Float16 {
  using Storage = uint16_t;
  using D16 = hn::Rebind<hwy::float16_t, DF>;
  static HWY_INLINE Pair load(const uint16_t* from) {
    return {load_vector(from), load_vector(from + kVector)};
  }
  static HWY_INLINE void store(Pair x, uint16_t* to) {
    store_vector(x.lo, to);
    store_vector(x.hi, to + kVector);
  }
  static HWY_INLINE Pair rounded(Pair x) {
    const DF df;
    const D16 d16;
    return {hn::PromoteTo(df, hn::DemoteTo(d16, x.lo)), hn::PromoteTo(df, hn::DemoteTo(d16, x.hi))};
  }

 private:
  static HWY_INLINE VF load_vector(const uint16_t* from) {
    return hn::PromoteTo(DF{}, hn::BitCast(D16{}, hn::LoadU(DHalf16{}, from)));
  }
  static HWY_INLINE void store_vector(VF x, uint16_t* to) {
    hn::StoreU(hn::BitCast(DHalf16{}, hn::DemoteTo(D16{}, x)), DHalf16{}, to);
  }
};

// Which weights are the old ones, to the bit.
HWY_INLINE MF unchanged(VF stored, VF old) {
  return hn::RebindMask(DF{}, hn::Eq(bits_of(stored), bits_of(old)));
}
HWY_INLINE size_t count_unchanged(Pair stored, Pair old) {
  const DF df;
  return hn::CountTrue(df, unchanged(stored.lo, old.lo)) +
         hn::CountTrue(df, unchanged(stored.hi, old.hi));
}

// Asks for the lines of the pair that comes 2 KiB later in this stream: hardware prefetchers stop
// at a page and are late with many streams. A hint, so it may point behind the end.
template <class Storage>
HWY_INLINE void prefetch_ahead(const Storage* pair) {
  constexpr int64_t kAhead = 2048, kLine = 64;
  const auto* bytes = reinterpret_cast<const char*>(pair) + kAhead;
  for (int64_t b = 0; b < kPair * static_cast<int64_t>(sizeof(Storage)); b += kLine) {
    hwy::Prefetch(bytes + b);
  }
}

// Calls f with the trait of a format; false for float64, which the oracle handles.
template <class Function>
HWY_INLINE bool with_format(Format format, const Function& f) {
  switch (format) {
    case Format::float32:
      f(Float32{});
      return true;
    case Format::bfloat16:
      f(BFloat16{});
      return true;
    case Format::float16:
      f(Float16{});
      return true;
    default:
      break;
  }
  return false;
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target

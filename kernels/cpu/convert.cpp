// SPDX-License-Identifier: Apache-2.0
// convert, scale and add, vector form of reference/convert.h. Whole pairs of vectors here; float64
// and the last elements go through the oracle, which has the same bits.
#include "kernels/reference/convert.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

// Conversion keeps a NaN's payload: the upper bits, made quiet.
template <class To, class From>
HWY_INLINE void convert_pair(Pair x, typename To::Storage* to) {
  if constexpr (std::is_same_v<To, BFloat16>) {
    const DU du;
    const VU quiet = hn::Set(du, 0x00400000);
    const auto round = [&](VF v) HWY_ATTR {
      return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Or(bits_of(v), quiet),
                            nearest_bfloat16(v));
    };
    BFloat16::store_bits({round(x.lo), round(x.hi)}, to);
  } else {
    To::store(x, to);
  }
}

// Calls f(to, from) for a pair of formats and processes the elements f leaves by the oracle.
template <class Vector, class Oracle>
HWY_INLINE void run(void* destination, Format to, const void* source, Format from, int64_t count,
                    const Vector& vector, const Oracle& oracle) {
  int64_t done = 0;
  with_format(to, [&](auto t) HWY_ATTR {
    with_format(from, [&](auto s) HWY_ATTR {
      using To = decltype(t);
      using From = decltype(s);
      auto* d = static_cast<typename To::Storage*>(destination);
      const auto* x = static_cast<const typename From::Storage*>(source);
      for (; done + kPair <= count; done += kPair) vector(t, s, d + done, x + done);
    });
  });
  if (done < count) {
    const auto offset = static_cast<size_t>(done);
    oracle(static_cast<char*>(destination) + offset * size_of(to),
           static_cast<const char*>(source) + offset * size_of(from), count - done);
  }
}

void convert(void* destination, Format to, const void* source, Format from, int64_t count) {
  const auto oracle = [&](void* d, const void* s, int64_t n) {
    reference::convert(d, to, s, from, n);
  };
  if (to == from) return oracle(destination, source, count);  // memcpy
  run(
      destination, to, source, from, count,
      [](auto t, auto s, auto* d, const auto* x)
          HWY_ATTR { convert_pair<decltype(t), decltype(s)>(decltype(s)::load(x), d); },
      oracle);
}

void scale(void* destination, Format to, const void* source, Format from, float factor,
           int64_t count) {
  const VF f = hn::Set(DF{}, factor);
  run(
      destination, to, source, from, count,
      [&](auto t, auto s, auto* d, const auto* x) HWY_ATTR {
        const Pair p = decltype(s)::load(x);
        decltype(t)::store({canonical(hn::Mul(p.lo, f)), canonical(hn::Mul(p.hi, f))}, d);
      },
      [&](void* d, const void* s, int64_t n) { reference::scale(d, to, s, from, factor, n); });
}

void add(void* destination, Format to, const void* source, Format from, int64_t count) {
  run(
      destination, to, source, from, count,
      [](auto t, auto s, auto* d, const auto* x) HWY_ATTR {
        const Pair a = decltype(t)::load(d), b = decltype(s)::load(x);
        decltype(t)::store({canonical(hn::Add(a.lo, b.lo)), canonical(hn::Add(a.hi, b.hi))}, d);
      },
      [&](void* d, const void* s, int64_t n) { reference::add(d, to, s, from, n); });
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace outrigger::kernels::cpu {
OTR_EXPORT(ConvertFunction, convert_for, convert)
OTR_EXPORT(ScaleFunction, scale_for, scale)
OTR_EXPORT(AddFunction, add_for, add)
}  // namespace outrigger::kernels::cpu
#endif

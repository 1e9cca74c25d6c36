// SPDX-License-Identifier: Apache-2.0
// Storage formats, one element at a time: every conversion written once, in integers where a
// processor's own instruction truncates, flushes denormals or drops a NaN's payload.
//
//   float32 -> bfloat16   nearest even: (bits + 0x7fff + lsb) >> 16; a NaN keeps its upper bits,
//   quiet
//                         stochastic:   (bits + r) >> 16 with r uniform in [0, 2^16)
//   float32 -> float16    nearest even with denormals, beyond 65520 infinite
//   float64 -> 16 bits    through float32 rounded to odd, so that only one rounding happens
//
// Included by device code later: nothing here allocates, throws or needs the standard library.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/kernels.h"

#if defined(__CUDACC__)
#define OTR_ELEMENTWISE __host__ __device__ inline
#else
#define OTR_ELEMENTWISE inline
#endif

namespace outrigger::kernels::reference {

inline constexpr uint32_t kCanonicalNan = 0x7fc00000;

OTR_ELEMENTWISE uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
OTR_ELEMENTWISE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
OTR_ELEMENTWISE bool is_nan(float x) { return __builtin_isnan(x); }
OTR_ELEMENTWISE bool is_finite(float x) { return (bits_of(x) & 0x7f800000) != 0x7f800000; }

// What arithmetic may store: any number, or the canonical NaN.
OTR_ELEMENTWISE float canonical(float x) { return is_nan(x) ? float_of(kCanonicalNan) : x; }

// ---- bfloat16 ----
OTR_ELEMENTWISE float widen_bfloat16(uint16_t x) { return float_of(uint32_t{x} << 16); }

OTR_ELEMENTWISE uint16_t round_to_bfloat16(float x) {
  const uint32_t bits = bits_of(x);
  if (is_nan(x)) return static_cast<uint16_t>((bits >> 16) | 0x0040);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Zero, Inf, the canonical NaN and every value that bfloat16 holds have 16 low zero bits and come
// through unchanged. Between the largest finite bfloat16 and 2^128 the carry goes to Inf, as
// nearest-even's does: clamping there would bias the mean and hide that the state has left its
// range.
OTR_ELEMENTWISE uint16_t round_to_bfloat16(float x, uint16_t random) {
  return static_cast<uint16_t>((bits_of(canonical(x)) + random) >> 16);
}

// The same of what canonical() has returned, whose NaN both leave as it is.
OTR_ELEMENTWISE uint16_t round_canonical_to_bfloat16(float x) {
  const uint32_t bits = bits_of(x);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
OTR_ELEMENTWISE uint16_t round_canonical_to_bfloat16(float x, uint16_t random) {
  return static_cast<uint16_t>((bits_of(x) + random) >> 16);
}

// ---- float16 ----
OTR_ELEMENTWISE float widen_float16(uint16_t x) {
  const uint32_t sign = uint32_t{x & 0x8000U} << 16;
  const uint32_t exponent = (x >> 10) & 0x1f, mantissa = x & 0x3ff;
  if (exponent == 0x1f) {
    return float_of(sign | 0x7f800000 | (mantissa ? 0x00400000 | mantissa << 13 : 0));
  }
  if (exponent == 0) {  // a multiple of 2^-24, exact in float32
    return float_of(sign | bits_of(static_cast<float>(mantissa) * 0x1p-24F));
  }
  return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

OTR_ELEMENTWISE uint16_t round_to_float16(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (magnitude > 0x7f800000) {
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and above
  if (magnitude < 0x38800000) {  // below 2^-14: adding 1/2 rounds to a multiple of 2^-24
    const float shifted = float_of(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (bits_of(shifted) - bits_of(0.5F)));
  }
  const uint32_t rebiased = magnitude - (uint32_t{112} << 23);
  return static_cast<uint16_t>(sign | ((rebiased + 0xfff + ((rebiased >> 13) & 1)) >> 13));
}

// ---- float64 ----
// Truncated, with the last bit set if anything was lost: rounding the result again to 16 bits then
// gives what one rounding of x would have given.
OTR_ELEMENTWISE float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto back = static_cast<double>(nearest);
  if (back == x || is_nan(nearest)) return nearest;
  const bool went_up = (back < 0 ? -back : back) > (x < 0 ? -x : x);
  const uint32_t truncated = bits_of(nearest) - (went_up ? 1 : 0);
  return float_of(truncated | 1);
}

// ---- one trait a format ----
template <Format kFormat>
struct Element;

template <>
struct Element<Format::float32> {
  using Storage = float;
  OTR_ELEMENTWISE static float load(float x) { return x; }
  OTR_ELEMENTWISE static float store(float x) { return x; }
  OTR_ELEMENTWISE static float store_double(double x) { return static_cast<float>(x); }
};
template <>
struct Element<Format::bfloat16> {
  using Storage = uint16_t;
  OTR_ELEMENTWISE static float load(uint16_t x) { return widen_bfloat16(x); }
  OTR_ELEMENTWISE static uint16_t store(float x) { return round_to_bfloat16(x); }
  OTR_ELEMENTWISE static uint16_t store_double(double x) {
    return round_to_bfloat16(round_to_odd(x));
  }
};
template <>
struct Element<Format::float16> {
  using Storage = uint16_t;
  OTR_ELEMENTWISE static float load(uint16_t x) { return widen_float16(x); }
  OTR_ELEMENTWISE static uint16_t store(float x) { return round_to_float16(x); }
  OTR_ELEMENTWISE static uint16_t store_double(double x) {
    return round_to_float16(round_to_odd(x));
  }
};
template <>
struct Element<Format::float64> {
  using Storage = double;
  OTR_ELEMENTWISE static float load(double x) { return static_cast<float>(x); }
  OTR_ELEMENTWISE static double store(float x) { return static_cast<double>(x); }
  OTR_ELEMENTWISE static double store_double(double x) { return x; }
};

// Calls f with the format's trait as its argument.
template <class Function>
inline auto with_element(Format format, Function&& f) {
  switch (format) {
    case Format::bfloat16:
      return f(Element<Format::bfloat16>{});
    case Format::float16:
      return f(Element<Format::float16>{});
    case Format::float64:
      return f(Element<Format::float64>{});
    default:  // float32; blocks and halves of a split are no elements
      break;
  }
  return f(Element<Format::float32>{});
}

}  // namespace outrigger::kernels::reference

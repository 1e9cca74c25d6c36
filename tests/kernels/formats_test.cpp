// SPDX-License-Identifier: Apache-2.0
// The oracle's conversions against a search in the sorted table of all values of a format.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/support.h"

namespace outrigger::kernels::test {
namespace {

using namespace reference;  // NOLINT: the functions under test

// All finite non-negative values of a 16-bit format with `mantissa` mantissa bits, by definition;
// pattern i has value table[i]. One more entry stands for "infinite": where the next value would
// be.
std::vector<double> table_of(int mantissa, int bias) {
  std::vector<double> table;
  const int exponents = (1 << (15 - mantissa)) - 1;
  for (int e = 0; e < exponents; ++e) {
    for (int f = 0; f < 1 << mantissa; ++f) {
      const double significand = e == 0 ? f : f + (1 << mantissa);
      table.push_back(std::ldexp(significand, (e == 0 ? 1 : e) - bias - mantissa));
    }
  }
  table.push_back(std::ldexp(1.0, exponents - bias));
  return table;
}

// Nearest pattern, ties to the even one.
uint16_t search(const std::vector<double>& table, double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(x);
  const auto above = std::lower_bound(table.begin(), table.end(), magnitude);
  if (above == table.end()) return static_cast<uint16_t>(sign | (table.size() - 1));
  auto i = static_cast<size_t>(above - table.begin());
  if (*above != magnitude) {
    // The gaps are powers of two, so both differences are exact unless x is far below the format's
    // range, where they round to something still on the right side.
    const double up = table[i] - magnitude, down = magnitude - table[i - 1];
    if (down < up || (down == up && (i - 1) % 2 == 0)) --i;
  }
  return static_cast<uint16_t>(sign | i);
}

const std::vector<double>& bfloat16_table() {
  static const std::vector<double> table = table_of(7, 127);
  return table;
}
const std::vector<double>& float16_table() {
  static const std::vector<double> table = table_of(10, 15);
  return table;
}

// Values at, and next to, every value and every midpoint of a table.
template <class T, class Check>
void at_boundaries(const std::vector<double>& table, const Check& check) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  for (size_t i = 0; i + 1 < table.size(); ++i) {
    for (const double x : {table[i], (table[i] + table[i + 1]) / 2}) {
      const auto t = static_cast<T>(x);
      for (const T y : {t, std::nextafter(t, kInfinity), std::nextafter(t, -kInfinity)}) {
        check(y);
        check(-y);
      }
    }
  }
}

TEST(Formats, EveryBfloat16PatternWidensAndComesBack) {
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto pattern = static_cast<uint16_t>(i);
    const float x = widen_bfloat16(pattern);
    EXPECT_EQ(bits_of(x), i << 16);
    EXPECT_EQ(round_to_bfloat16(x), is_nan(x) ? pattern | 0x0040 : pattern);
  }
}

TEST(Formats, EveryFloat16PatternHasItsValueAndComesBack) {
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto pattern = static_cast<uint16_t>(i);
    const float x = widen_float16(pattern);
    const size_t magnitude = i & 0x7fff;
    if (magnitude < 0x7c00) {
      EXPECT_EQ(std::fabs(static_cast<double>(x)), float16_table()[magnitude]);
    } else {
      EXPECT_EQ(std::isnan(x), magnitude > 0x7c00);
      EXPECT_EQ(std::isinf(x), magnitude == 0x7c00);
    }
    EXPECT_EQ(std::signbit(x), (i & 0x8000) != 0);
    EXPECT_EQ(round_to_float16(x), magnitude > 0x7c00 ? pattern | 0x0200 : pattern);
  }
}

TEST(Formats, RoundsToTheNearestAtEveryBoundary) {
  at_boundaries<float>(bfloat16_table(), [](float x) {
    ASSERT_EQ(round_to_bfloat16(x), search(bfloat16_table(), x)) << x;
  });
  at_boundaries<float>(float16_table(), [](float x) {
    ASSERT_EQ(round_to_float16(x), search(float16_table(), x)) << x;
  });
}

// float64 to 16 bits is one rounding: just above a midpoint of the narrow format float32 sees the
// midpoint.
TEST(Formats, Float64RoundsOnce) {
  using Bfloat16 = Element<Format::bfloat16>;
  using Float16 = Element<Format::float16>;
  at_boundaries<double>(bfloat16_table(), [](double x) {
    ASSERT_EQ(Bfloat16::store_double(x), search(bfloat16_table(), x)) << x;
  });
  at_boundaries<double>(float16_table(), [](double x) {
    ASSERT_EQ(Float16::store_double(x), search(float16_table(), x)) << x;
  });
  EXPECT_EQ(round_to_bfloat16(static_cast<float>(1.00390625 + 0x1p-50)), 0x3f80) << "two roundings";
  EXPECT_EQ(Bfloat16::store_double(1.00390625 + 0x1p-50), 0x3f81) << "one";
  for (const double x : {1e300, 1e39, 1e-300, 0.0, 5e-324}) {
    EXPECT_EQ(Bfloat16::store_double(x), search(bfloat16_table(), x));
    EXPECT_EQ(Bfloat16::store_double(-x), search(bfloat16_table(), -x));
  }
}

TEST(Formats, NansStayQuietNans) {
  for (const uint32_t payload : {1U, 0xffffU, 0x10000U, 0x3fffffU, 0x400000U, 0x7fffffU}) {
    for (const uint32_t sign : {0U, 0x80000000U}) {
      const float x = float_of(sign | 0x7f800000 | payload);
      EXPECT_EQ(round_to_bfloat16(x), ((sign | 0x7f800000 | payload) >> 16) | 0x40);
      EXPECT_TRUE(is_nan(widen_bfloat16(round_to_bfloat16(x))));
      EXPECT_TRUE(is_nan(widen_float16(round_to_float16(x))));
      EXPECT_EQ(bits_of(canonical(x)), 0x7fc00000U);
    }
  }
}

TEST(Formats, StochasticRoundingKeepsWhatNeedsNoRounding) {
  for (const uint16_t r :
       {uint16_t{0}, uint16_t{1}, uint16_t{0x7fff}, uint16_t{0x8000}, uint16_t{0xffff}}) {
    for (uint32_t i = 0; i <= 0xffff; ++i) {
      const float x = widen_bfloat16(static_cast<uint16_t>(i));
      EXPECT_EQ(round_to_bfloat16(x, r), is_nan(x) ? 0x7fc0 : i);
    }
  }
}

TEST(Formats, StochasticRoundingGoesUpInProportion) {
  // 0x3f800000 + f/65536 of a step: up for exactly f of the 65536 random numbers.
  for (const uint32_t fraction : {1U, 0x1234U, 0x8000U, 0xffffU}) {
    uint32_t ups = 0;
    for (uint32_t r = 0; r <= 0xffff; ++r) {
      const uint16_t rounded =
          round_to_bfloat16(float_of(0x3f800000 | fraction), static_cast<uint16_t>(r));
      ASSERT_TRUE(rounded == 0x3f80 || rounded == 0x3f81);
      ups += rounded == 0x3f81 ? 1 : 0;
    }
    EXPECT_EQ(ups, fraction);
  }
  EXPECT_EQ(round_to_bfloat16(float_of(0x7f7fffff), 1), 0x7f80) << "the last step's carry is Inf";
  EXPECT_EQ(round_to_bfloat16(float_of(0x7f7fffff), 0), 0x7f7f);
}

}  // namespace
}  // namespace outrigger::kernels::test

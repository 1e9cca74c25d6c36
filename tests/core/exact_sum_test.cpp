// SPDX-License-Identifier: Apache-2.0
// Sums of doubles that are rounded once, and bits in words.
#include "core/optimizer/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/base/bits.h"

namespace outrigger {
namespace {

using optimizer::ExactSum;
using Limits = std::numeric_limits<double>;

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum.value();
}

TEST(ExactSumTest, OneValueIsItself) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const double value = std::fabs(std::bit_cast<double>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(sum_of({value}), value) << i;
  }
  for (const double value : {0.0, Limits::denorm_min(), 3 * Limits::denorm_min(), Limits::min(),
                             Limits::min() - Limits::denorm_min(), Limits::max(), HUGE_VAL}) {
    EXPECT_EQ(sum_of({value}), value);
  }
}

TEST(ExactSumTest, TwoValuesAreTheirRoundedSum) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> mantissa(1, 2);
  std::uniform_int_distribution<int> exponent(-70, 0), base(-950, 1000);
  for (int i = 0; i < 10'000; ++i) {
    const int scale = base(random);
    const double a = std::ldexp(mantissa(random), scale);
    const double b = std::ldexp(mantissa(random), scale + exponent(random));
    ASSERT_EQ(sum_of({a, b}), a + b) << a << " + " << b;
  }
}

TEST(ExactSumTest, LosesNothingToTheOrder) {
  // One at a time, none of the small ones would count.
  std::vector<double> values(1024, 0x1p-53);
  values.insert(values.begin(), 1.0);
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0), 1.0);
  EXPECT_EQ(sum_of(values), 1.0 + 0x1p-43);
  EXPECT_EQ(sum_of({1.0, 0x1p-53}), 1.0) << "to even";
  EXPECT_EQ(sum_of({1.0, 0x1p-53, Limits::denorm_min()}), 1.0 + 0x1p-52) << "above the middle";
  EXPECT_EQ(sum_of({Limits::max(), Limits::max()}), HUGE_VAL);

  std::mt19937_64 random(3);
  values.clear();
  for (int i = 0; i < 1000; ++i) {
    values.push_back(std::ldexp(1.0 + static_cast<double>(random() % 1000) / 7,
                                static_cast<int>(random() % 120) - 60));
  }
  const double expected = sum_of(values);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(values.begin(), values.end(), random);
    ExactSum low, high;
    for (size_t at = 0; at < values.size(); ++at) (at < 300 ? low : high).add(values[at]);
    low.add(high);
    ASSERT_EQ(low.value(), expected);
  }
}

TEST(ExactSumTest, InfinityStays) {
  ExactSum sum, other;
  other.add(HUGE_VAL);
  sum.add(1);
  sum.add(other);
  sum.add(1);
  EXPECT_EQ(sum.value(), HUGE_VAL);
}

TEST(BitsTest, EachIsItsOwn) {
  for (const int64_t count : {1, 63, 64, 65, 200}) {
    for (int64_t set = 0; set < count; ++set) {
      Bits bits(count);
      EXPECT_EQ(bits.words().size(), static_cast<size_t>((count + 63) / 64));
      bits.set(set);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(bits[i], i == set) << count;
    }
  }
}

}  // namespace
}  // namespace outrigger

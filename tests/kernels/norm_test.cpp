// SPDX-License-Identifier: Apache-2.0
// The exact sum of leaf sums: order, cuts and instruction set leave no trace; the value is right.
#include "kernels/reference/norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/support.h"

namespace outrigger::kernels::test {
namespace {

void expect_equal(const NormSum& got, const NormSum& want) {
  EXPECT_EQ(got.limbs, want.limbs);
  EXPECT_EQ(got.nonfinite, want.nonfinite);
  EXPECT_EQ(got.first_nonfinite, want.first_nonfinite);
}

// Float32s over the whole range of exponents, denormals included.
void fill_wide(Array& x, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < x.count(); ++i) {
    const auto bits = static_cast<uint32_t>(random());
    x.set_value(i, (bits & 0x7f800000) == 0x7f800000 ? 1.0F : reference::float_of(bits));
  }
}

TEST(NormTest, EveryTargetHasTheOraclesLimbs) {
  for_each_target([] {
    for (const Format format : kFormats) {
      for (const int64_t count : kSizes) {
        for (const Values values : {Values::ordinary, Values::any}) {
          Array x(format, count, count % 3);
          fill(x, values, static_cast<uint64_t>(count));
          NormSum got, want;
          sum_of_squares(got, x.at(), format, count, 1000);
          reference::sum_of_squares(want, x.at(), format, count, 1000);
          expect_equal(got, want);
        }
      }
    }
  });
}

TEST(NormTest, LeavesInAnyOrderAndAnyGroupingGiveTheSameLimbs) {
  constexpr int64_t kLeaves = 200;
  Array x(Format::float32, kLeaves * kLeaf);
  fill_wide(x, 1);
  NormSum whole;
  sum_of_squares(whole, x.at(), Format::float32, x.count(), 0);

  std::mt19937_64 random(2);
  std::vector<int64_t> order(kLeaves);
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<NormSum> parts(5);
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t first = order[i] * kLeaf;
      sum_of_squares(parts[random() % parts.size()], x.at(first), Format::float32, kLeaf, first);
    }
    NormSum merged;
    for (const NormSum& part : parts) merge(merged, part);
    expect_equal(merged, whole);
  }
}

// The rational sum of the leaf sums, as an integer in units of 2^-298, by schoolbook addition of
// bits.
class BitSum {
 public:
  void add(double x) {
    int exponent = 0;
    auto mantissa = static_cast<uint64_t>(std::ldexp(std::frexp(x, &exponent), 53));
    int position = exponent - 53 + 298;
    for (; mantissa != 0; mantissa >>= 1, ++position) {
      if ((mantissa & 1) == 0) continue;
      ASSERT_GE(position, 0);
      auto i = static_cast<size_t>(position);
      while (bits_.at(i)) bits_.at(i++) = false;
      bits_.at(i) = true;
    }
  }
  void expect_limbs(const NormSum& sum) const {
    for (size_t i = 0; i < bits_.size(); ++i) {
      ASSERT_EQ(bits_[i], ((sum.limbs[i / 64] >> (i % 64)) & 1) != 0) << "bit " << i;
    }
  }

 private:
  std::vector<bool> bits_ = std::vector<bool>(640);
};

TEST(NormTest, AddsDoublesOfItsWholeRangeExactly) {
  std::mt19937_64 random(3);
  NormSum sum;
  BitSum want;
  for (int i = 0; i < 5000; ++i) {
    const auto mantissa = static_cast<double>(random() >> 11 | 1);
    const int exponent = static_cast<int>(random() % 510) - 298;  // mantissa's last bit >= 2^-298
    const double leaf = std::ldexp(mantissa, std::min(exponent, 264 - 53));
    reference::add_leaf(sum, leaf);
    want.add(leaf);
  }
  want.expect_limbs(sum);
}

TEST(NormTest, CarriesRunThroughEveryLimb) {
  NormSum ones, unit;
  for (size_t i = 0; i + 1 < ones.limbs.size(); ++i) ones.limbs[i] = ~uint64_t{0};
  reference::add_leaf(unit, 0x1p-298);
  NormSum added = ones;
  reference::add_leaf(added, 0x1p-298);
  merge(ones, unit);
  NormSum want;
  want.limbs.back() = 1;
  EXPECT_EQ(ones.limbs, want.limbs);
  EXPECT_EQ(added.limbs, want.limbs);
}

TEST(NormTest, HoldsTheSmallestAndTheLargestLeaf) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kHuge = std::numeric_limits<float>::max();
  for_each_target([] {
    Array x(Format::float32, 1);
    NormSum sum;
    x.set(0, kTiny);
    sum_of_squares(sum, x.at(), Format::float32, 1, 0);
    EXPECT_EQ(sum.limbs[0], 1U);
    EXPECT_EQ(value_of(sum), 0x1p-298);

    Array leaf(Format::float32, kLeaf);
    for (int64_t i = 0; i < kLeaf; ++i) leaf.set(i, kHuge);
    NormSum big;
    sum_of_squares(big, leaf.at(), Format::float32, kLeaf, 0);
    EXPECT_EQ(value_of(big), 256.0 * static_cast<double>(kHuge) * static_cast<double>(kHuge));
    // 2^60 such leaves by doubling: no overflow.
    for (int i = 0; i < 60; ++i) {
      const NormSum copy = big;
      merge(big, copy);
    }
    EXPECT_EQ(value_of(big),
              std::ldexp(256.0 * static_cast<double>(kHuge) * static_cast<double>(kHuge), 60));
  });
}

TEST(NormTest, ValueIsRoundedOnceToNearestEven) {
  const auto sum_of = [](std::initializer_list<double> terms) {
    NormSum sum;
    for (const double t : terms) reference::add_leaf(sum, t);
    return value_of(sum);
  };
  EXPECT_EQ(sum_of({}), 0.0);
  EXPECT_EQ(sum_of({1.0, 0x1p-53}), 1.0) << "tie to even";
  EXPECT_EQ(sum_of({1.0, 0x1p-53, 0x1p-250}), 1.0 + 0x1p-52) << "just above the tie";
  EXPECT_EQ(sum_of({1.0 + 0x1p-52, 0x1p-53}), 1.0 + 0x1p-51) << "tie to even, upwards";
  EXPECT_EQ(sum_of({2.0 - 0x1p-52, 0x1p-53}), 2.0) << "carry into the next power";
  EXPECT_EQ(sum_of({0x1p-298, 0x1p-297}), 3 * 0x1p-298);
}

// A long double accumulation of few terms is exact enough to tell a wrong bit.
TEST(NormTest, AgreesWithLongDouble) {
  Array x(Format::float32, 10 * kLeaf);
  fill(x, Values::ordinary, 4);
  long double want = 0;
  for (int64_t i = 0; i < x.count(); ++i) want += static_cast<long double>(x.value(i)) * x.value(i);
  NormSum sum;
  sum_of_squares(sum, x.at(), Format::float32, x.count(), 0);
  // A leaf's own float64 sum rounds 8 + 5 times.
  EXPECT_NEAR(value_of(sum), static_cast<double>(want), static_cast<double>(want) * 13 * 0x1p-53);
}

TEST(NormTest, CountsNonFiniteElementsAndLeavesTheirLeafOut) {
  for_each_target([] {
    for (const Format format : {Format::float32, Format::bfloat16, Format::float16}) {
      Array x(format, 3 * kLeaf);
      for (int64_t i = 0; i < x.count(); ++i) x.set_value(i, 1.0F);
      x.set_value(256 + 7, std::numeric_limits<float>::infinity());
      x.set_value(256 + 9, std::numeric_limits<float>::quiet_NaN());
      x.set_value(511, -std::numeric_limits<float>::infinity());
      NormSum sum;
      sum_of_squares(sum, x.at(), format, x.count(), 10000);
      EXPECT_EQ(sum.nonfinite, 3);
      EXPECT_EQ(sum.first_nonfinite, 10000 + 256 + 7);
      EXPECT_EQ(value_of(sum), 512.0);

      NormSum other;
      other.nonfinite = 2;
      other.first_nonfinite = 44;
      NormSum merged = sum;
      merge(merged, other);
      EXPECT_EQ(merged.nonfinite, 5);
      EXPECT_EQ(merged.first_nonfinite, 44);
      merge(other, NormSum{});
      EXPECT_EQ(other.first_nonfinite, 44);
    }
  });
}

}  // namespace
}  // namespace outrigger::kernels::test

// SPDX-License-Identifier: Apache-2.0
// 8-bit integers: every instruction set against the oracle, and the oracle against what its page
// promises.
#include "kernels/reference/integers.h"

#include <cmath>
#include <limits>

#include "kernels/in_integers.h"
#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_values(int64_t count, Values kind, uint64_t seed) {
  Array array(Format::float32, count);
  fill(array, kind, seed);
  return array.values();
}

// The values as integers would give them back.
std::vector<float> sent(const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  Array integers(Format::block8, count);
  to_integers(integers.at(), integers.scales(), values.data(), count);
  std::vector<float> back(values.size());
  from_integers(back.data(), integers.at(), integers.scales(), count);
  return back;
}

float largest_of(const std::vector<float>& values) {
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

TEST(Integers, EveryTargetHasTheOraclesBits) {
  for_each_target([] {
    for (const Values kind : {Values::ordinary, Values::any}) {
      for (const int64_t count : kSizes) {
        std::vector<float> values = random_values(count, kind, 5);
        for (int64_t i = 0; i < count; ++i) {  // one leaf in three stays without Inf and NaN
          float& x = values[static_cast<size_t>(i)];
          if (i / kLeaf % 3 == 1 && !std::isfinite(x)) x = 0;
        }
        Array got(Format::block8, count, 1), want(Format::block8, count, 1);
        to_integers(got.at(), got.scales(), values.data(), count);
        reference::to_integers(want.at(), want.scales(), values.data(), count);
        expect_same_bits(got, want);
        fill(got, kind, 6);  // any bits are read alike, too
        std::vector<float> read(values.size()), by_oracle(values.size());
        from_integers(read.data(), got.at(), got.scales(), count);
        reference::from_integers(by_oracle.data(), got.at(), got.scales(), count);
        for (size_t i = 0; i < read.size(); ++i) {  // NaNs, too
          ASSERT_EQ(reference::bits_of(read[i]), reference::bits_of(by_oracle[i])) << i;
        }
      }
    }
  });
}

// Half a 127th of the leaf's largest, and the largest itself, whatever lies in other leaves.
TEST(Integers, EachIsWithinHalfAUnitOfItsLeafsLargest) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<float> leaf = random_values(kLeaf, Values::ordinary, seed);
    std::vector<float> values(2 * kLeaf, 1e30F);
    std::copy(leaf.begin(), leaf.end(), values.begin());
    const std::vector<float> back = sent(values);
    const float largest = largest_of(leaf);
    for (size_t i = 0; i < leaf.size(); ++i) {
      ASSERT_LE(std::abs(back[i] - leaf[i]), largest / 254 * 1.00001F) << i;
      if (std::abs(leaf[i]) == largest) {
        EXPECT_NEAR(back[i] / leaf[i], 1, 0x1p-22);
      }
    }
  }
}

TEST(Integers, TiesGoToTheEvenInteger) {
  EXPECT_EQ(sent({127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -126.5F}),
            (std::vector<float>{127, 0, 2, 2, 0, -2, -126}));
}

TEST(Integers, ValuesAtTheEndsOfTheRangeStayFinite) {
  const float most = std::numeric_limits<float>::max();
  EXPECT_NEAR(sent({1, most})[1] / most, 1, 0x1p-22);
  EXPECT_NEAR(sent({-most, 1})[0] / most, -1, 0x1p-22);
  EXPECT_EQ(sent(std::vector<float>(300, 0)), std::vector<float>(300, 0));
  const std::vector<float> small = sent({0x1p-100F, 0x1p-120F, 0x1p-149F});
  EXPECT_NEAR(small[0] / 0x1p-100F, 1, 0x1p-22);
  EXPECT_EQ(small[1], 0);
  EXPECT_EQ(small[2], 0);
}

TEST(Integers, ALeafWithInfOrNanIsNan) {
  for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(3 * kLeaf, 2);
    values[kLeaf + 7] = bad;
    const std::vector<float> back = sent(values);
    for (size_t i = 0; i < back.size(); ++i) {
      ASSERT_EQ(std::isnan(back[i]), i / kLeaf == 1) << i;
    }
    EXPECT_NEAR(back[0], 2, 1e-6);
  }
}

// Of every format, at sizes that no buffer divides.
TEST(Integers, ValuesOfEveryFormatAreSent) {
  for (const Format format : {Format::float32, Format::bfloat16, Format::float16}) {
    for (const int64_t count : {int64_t{1}, 4 * kLeaf, 9 * kLeaf + 5}) {
      Array values(format, count), back(format, count), want(format, count);
      fill(values, Values::ordinary, 3);
      Array integers(Format::block8, count);
      values_to_integers(integers.at(), integers.scales(), values.at(), format, count);
      values_from_integers(back.at(), format, integers.at(), integers.scales(), count);
      const std::vector<float> wide = sent(values.values());
      convert(want.at(), format, wide.data(), Format::float32, count);
      expect_same_bits(back, want);
    }
  }
}

}  // namespace
}  // namespace outrigger::kernels::test

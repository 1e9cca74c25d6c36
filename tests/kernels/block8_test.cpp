// SPDX-License-Identifier: Apache-2.0
// 8-bit blocks and split masters: every instruction set against the oracle; what is exact, what is
// bounded, what is right on average; and that a second moment shrinks.
#include <cmath>
#include <limits>

#include "kernels/reference/split.h"
#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

constexpr Format kBlockFormats[] = {Format::block8, Format::positive_block8};
constexpr Rounding kRoundings[] = {Rounding::nearest, Rounding::stochastic};

std::vector<float> random_values(int64_t count, Values kind, uint64_t seed) {
  Array array(Format::float32, count);
  fill(array, kind, seed);
  return array.values();
}

// The values as a block would give them back.
std::vector<float> stored(const std::vector<float>& values, Format format,
                          const BlockRounding& rounding = {}) {
  const auto count = static_cast<int64_t>(values.size());
  Array blocks(format, count);
  pack(blocks.at(), blocks.scales(), format, values.data(), count, rounding);
  std::vector<float> back(values.size());
  unpack(back.data(), blocks.at(), blocks.scales(), format, count);
  return back;
}

TEST(Block8, EveryTargetHasTheOraclesBits) {
  for_each_target([] {
    for (const Format format : kBlockFormats) {
      for (const Rounding rounding : kRoundings) {
        for (const Values kind : {Values::ordinary, Values::any}) {
          for (const int64_t count : kSizes) {
            std::vector<float> values = random_values(count, kind, 5);
            if (kind == Values::any) {  // one block in three stays without Inf and NaN
              for (int64_t i = 0; i < count; ++i) {
                float& x = values[static_cast<size_t>(i)];
                if (i / kLeaf % 3 == 1 && !std::isfinite(x)) x = 0;
              }
            }
            const BlockRounding r = {rounding, 77, 512, (uint64_t{1} << 32) + 3};
            Array got(format, count, 1), want(format, count, 1);
            pack(got.at(), got.scales(), format, values.data(), count, r);
            reference::pack(want.at(), want.scales(), format, values.data(), count, r);
            expect_same_bits(got, want);
            fill(got, kind, 6);  // any bits are read alike, too
            std::vector<float> read(values.size());
            unpack(read.data(), got.at(), got.scales(), format, count);
            const std::vector<float> by_oracle = got.values();
            for (size_t i = 0; i < read.size(); ++i) {  // NaNs, too
              ASSERT_EQ(reference::bits_of(read[i]), reference::bits_of(by_oracle[i])) << i;
            }
          }
        }
      }
    }
  });
}

// Whatever a code says comes back as the same code, under every scale.
TEST(Block8, WhatWasReadIsStoredExactly) {
  for (const Format format : kBlockFormats) {
    for (const float scale : {0x1p-100F, 0x1p-20F, 1.0F, 0x1p+127F}) {
      Array block(format, kLeaf);
      *block.scales() = scale;
      for (int64_t code = 0; code < kLeaf; ++code) {
        static_cast<unsigned char*>(block.at())[code] = static_cast<unsigned char>(code);
      }
      const std::vector<float> values = block.values();
      for (const Rounding rounding : kRoundings) {
        ASSERT_EQ(stored(values, format, {rounding, 1, 0, 0}), values) << scale;
      }
    }
  }
}

// 1/16 of a value down to the least normal one, below that of the least normal one (but no positive
// value becomes zero: see below).
TEST(Block8, NearestIsWithinHalfAUnit) {
  for (const Format format : kBlockFormats) {
    const float least = format == Format::block8 ? 0x1p-14F : 0x1p-30F;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::vector<float> values = random_values(kLeaf, Values::ordinary, seed);
      float largest = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::ldexp(values[i], -static_cast<int>((seed + i) % 40));
        if (format == Format::positive_block8) values[i] = std::fabs(values[i]);
        largest = std::max(largest, std::fabs(values[i]));
      }
      const std::vector<float> back = stored(values, format);
      const float scale = largest / 0.9375F;  // at most: the next lower one would end at 1.875/2
      for (size_t i = 0; i < values.size(); ++i) {
        if (format == Format::positive_block8 && values[i] < least * scale / 8) continue;
        const float unit = std::max(std::fabs(values[i]), least * scale) / 16;
        ASSERT_LE(std::fabs(back[i] - values[i]), unit) << values[i] << " beside " << largest;
      }
    }
  }
}

// Over many steps the mean of what is stored is the value: where codes are dense, sparse, the last.
TEST(Block8, StochasticIsRightOnAverage) {
  for (const Format format : kBlockFormats) {
    const float least = format == Format::block8 ? 0x1p-16F : 0x1p-32F;  // of scale 2
    std::vector<float> values(kLeaf);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = i < 200
                      ? std::ldexp(1.0F + static_cast<float>(i) / 211, -static_cast<int>(i % 12))
                      : least * (1.0F + static_cast<float>(i - 200) / 7);
    }
    values[0] = 1.93F;  // beyond the last code of scale 1, so the scale is 2
    constexpr int kSteps = 4000;
    std::vector<double> sum(values.size());
    for (int t = 0; t < kSteps; ++t) {
      const std::vector<float> back =
          stored(values, format, {Rounding::stochastic, 9, 0, static_cast<uint64_t>(t)});
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(back[i]);
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      // A unit is at most 1/8 of a value, or twice the least one; half a unit is the largest
      // deviation, so 5 deviations of the mean are 2.5 units / sqrt(steps).
      const double unit = std::max(value / 8, 2 * static_cast<double>(least));
      ASSERT_NEAR(sum[i] / kSteps, value, 2.5 * unit / std::sqrt(kSteps)) << "element " << i;
    }
  }
}

TEST(Block8, APositiveValueIsNeverStoredAsZero) {
  for_each_target([] {
    std::vector<float> values(kLeaf, 1e-30F);
    values[0] = 1;
    values[1] = 0;
    values[2] = std::numeric_limits<float>::denorm_min();
    values[3] = 0x1p-100F;
    for (const Rounding rounding : kRoundings) {
      const std::vector<float> back = stored(values, Format::positive_block8, {rounding, 1, 0, 0});
      EXPECT_EQ(back[1], 0);
      for (size_t i = 2; i < back.size(); ++i) ASSERT_EQ(back[i], 0x1p-33F);
      values[0] = 0x1p+90F;  // beside it the smallest one vanishes when it is scaled
      ASSERT_EQ(stored(values, Format::positive_block8, {rounding, 1, 0, 0})[2], 0x1p+57F);
      values[0] = 1;
    }
  });
}

TEST(Block8, OneValueThatIsNotFiniteMakesItsBlockNan) {
  for (const Format format : kBlockFormats) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values(3 * kLeaf, 0.5F);
      values[static_cast<size_t>(kLeaf) + 17] = bad;
      const std::vector<float> back = stored(values, format);
      for (size_t i = 0; i < back.size(); ++i) {
        const bool inside = i / static_cast<size_t>(kLeaf) == 1;
        ASSERT_EQ(std::isnan(back[i]), inside) << i;
        ASSERT_TRUE(inside || back[i] == 0.5F);
      }
    }
  }
}

TEST(Block8, TheLargestNumbersStayFinite) {
  for (const Format format : kBlockFormats) {
    const std::vector<float> values(kLeaf, std::numeric_limits<float>::max());
    for (const float x : stored(values, format)) ASSERT_EQ(x, 1.875F * 0x1p+127F);
  }
}

// Every bit pattern in steps of a prime.
TEST(Split, TheHalvesAreTheWhole) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 251) {
    const float x = reference::float_of(static_cast<uint32_t>(bits));
    const reference::Halves h = reference::split_of(x);
    const float back = reference::join(h.published, h.remainder);
    ASSERT_EQ(reference::bits_of(back), reference::bits_of(reference::canonical(x)));
    if (!std::isfinite(x) || std::fabs(x) > 3.38e38F) continue;
    const float published = reference::widen_bfloat16(h.published);
    const float nearest = reference::widen_bfloat16(reference::round_to_bfloat16(x));
    ASSERT_EQ(std::fabs(published - x), std::fabs(nearest - x));
    ASSERT_GE(std::fabs(published), std::fabs(nearest)) << "a tie goes away from zero";
  }
}

// Gradients of one, then of none: how far the second moment has come down after `steps` steps.
double second_moment_after(Format format, Rounding rounding, int steps) {
  AdamFormats formats;
  formats.exp_avg_sq = format;
  formats.exp_avg_sq_rounding = rounding;
  Parameter p(formats, kLeaf, 0, Values::ordinary, 1);
  p.exp_avg_sq.set_values(std::vector<float>(kLeaf, 1.0F));
  p.grad = Array(Format::float32, kLeaf);
  for (int t = 0; t < steps; ++t) {
    p.random.step = static_cast<uint64_t>(t);
    (void)update(p.step(ordinary_scalars()));
  }
  double sum = 0;
  for (const float v : p.exp_avg_sq.values()) sum += static_cast<double>(v);
  return sum / kLeaf;
}

// beta2 = 0.999: exact is 0.999^2000 = 0.135. A decrease of 0.1 % is less than half a unit of
// bfloat16 (0.2 to 0.4 %) and of an 8-bit code (6 %): nearest even stalls for good.
TEST(SecondMoment, ShrinksUnlessItIsRoundedToNearest) {
  const double exact = std::pow(0.999, 2000);
  EXPECT_NEAR(second_moment_after(Format::float32, Rounding::nearest, 2000), exact, 1e-4);
  EXPECT_NEAR(second_moment_after(Format::bfloat16, Rounding::stochastic, 2000), exact, 0.01);
  EXPECT_NEAR(second_moment_after(Format::positive_block8, Rounding::stochastic, 2000), exact,
              0.05);
  EXPECT_EQ(second_moment_after(Format::bfloat16, Rounding::nearest, 2000), 1.0);
  EXPECT_EQ(second_moment_after(Format::positive_block8, Rounding::nearest, 2000), 1.0);
}

}  // namespace
}  // namespace outrigger::kernels::test

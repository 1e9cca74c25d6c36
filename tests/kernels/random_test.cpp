// SPDX-License-Identifier: Apache-2.0
// Philox against the published known answers (Random123, kat_vectors), its counter layout, and the
// mean of stochastic rounding.
#include <array>
#include <cmath>

#include "kernels/reference/update.h"
#include "tests/kernels/support.h"

namespace outrigger::kernels::test {
namespace {

using reference::philox;
using reference::PhiloxBlock;

void expect_words(const PhiloxBlock& got, std::initializer_list<uint32_t> want) {
  size_t i = 0;
  for (const uint32_t w : want) EXPECT_EQ(got.x[i++], w);
}

TEST(Philox, KnownAnswers) {
  const PhiloxBlock zeros{{0, 0, 0, 0}}, ones{{~0U, ~0U, ~0U, ~0U}};
  const PhiloxBlock pi{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}};
  const uint64_t pi_key = 0x299f31d0a4093822;
  expect_words(philox(zeros, 0), {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  expect_words(philox(ones, ~uint64_t{0}), {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
  expect_words(philox(pi, pi_key), {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
  expect_words(philox(zeros, 0, 10), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words(philox(ones, ~uint64_t{0}, 10), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(philox(pi, pi_key, 10), {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// Number n of a leaf is in word n / 32 of block n / 2 mod 16; the second half has the first's
// numbers, and moments have the weight's, times odd constants.
TEST(Philox, ALeafHasSixteenBlocksWordByWord) {
  const uint64_t key = 0x0123456789abcdef, step = 0x1122334455667788, leaf = 0xabcdef0123450;
  constexpr uint16_t kFactors[2][3] = {{1, 0x43f9, 0x3261}, {0xac29, 0x972d, 0x403b}};
  for (uint64_t i = 0; i < 256; ++i) {
    const uint64_t n = i % 128, c = leaf * 16 + n / 2 % 16;
    const PhiloxBlock block = philox(
        {{static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), 0x55667788, 0x11223344}}, key);
    const auto number = static_cast<uint16_t>(block.x[n / 32] >> (16 * (n % 2)));
    for (const Draw draw : {Draw::weight, Draw::exp_avg, Draw::exp_avg_sq}) {
      EXPECT_EQ(reference::random16(key, leaf * 256 + i, step, draw),
                static_cast<uint16_t>(number * kFactors[i / 128][static_cast<int>(draw)]));
    }
  }
}

// Six uses of a number, two elements' three draws: each is uniform, and none says anything about
// the others beyond what 2^16 numbers can avoid: correlations of rounding errors at any threshold.
TEST(Philox, DrawsOfANumberAreUniformAndHardlyCorrelated) {
  std::vector<std::array<uint16_t, 6>> uses;
  for (uint64_t leaf = 0; leaf < 2000; ++leaf) {
    for (uint64_t n = leaf % 4; n < 128; n += 4) {
      std::array<uint16_t, 6> use{};
      for (size_t u = 0; u < 6; ++u) {
        use[u] =
            reference::random16(42, leaf * 256 + n + 128 * (u / 3), 9, static_cast<Draw>(u % 3));
      }
      uses.push_back(use);
    }
  }
  const auto count = static_cast<double>(uses.size());
  for (const double a : {0.1, 0.37, 0.5, 0.9}) {
    for (size_t i = 0; i < 6; ++i) {
      double up = 0;
      for (const auto& use : uses) up += use[i] < a * 65536 ? 1 : 0;
      EXPECT_NEAR(up / count, a, 5 * std::sqrt(a * (1 - a) / count));
      for (const double b : {0.2, 0.5, 0.77}) {
        for (size_t j = 0; j < i; ++j) {
          double both = 0;
          for (const auto& use : uses) both += use[i] < a * 65536 && use[j] < b * 65536 ? 1 : 0;
          EXPECT_NEAR(both / count, a * b, 5 * std::sqrt(a * b / count) + 0.01) << i << " " << j;
        }
      }
    }
  }
}

// One step that leaves every weight at 1 + 0.3 of a bfloat16 step in float32, on 2^20 elements: the
// mean of the stored weights is that value within five standard deviations. Fixed keys, so no flaky
// failures.
TEST(StochasticRounding, IsUnbiased) {
  constexpr int64_t kCount = int64_t{1} << 20;
  for_each_target([&] {
    Array weight(Format::bfloat16, kCount), exp_avg(Format::float32, kCount);
    Array exp_avg_sq(Format::float32, kCount), grad(Format::float32, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      weight.set_value(i, 1.0F);
      grad.set(i, 1.0F);
    }
    Update a;
    a.grad = grad.at();
    a.weight = weight.at();
    a.weight_format = Format::bfloat16;
    a.weight_rounding = Rounding::stochastic;
    a.exp_avg = exp_avg.at();
    a.exp_avg_sq = exp_avg_sq.at();
    a.count = kCount;
    a.scalars.beta1 = a.scalars.beta2 = 0;
    a.scalars.one_minus_beta1 = a.scalars.one_minus_beta2 = 1;
    a.scalars.eps = 0;
    a.scalars.minus_step = 0.3F * 0x1p-7F;
    a.random.key = 0x5eed;
    const UpdateCount count = update(a);
    double mean = 0;
    for (int64_t i = 0; i < kCount; ++i) mean += static_cast<double>(weight.value(i)) - 1;
    mean /= static_cast<double>(kCount) * 0x1p-7;
    EXPECT_NEAR(mean, 0.3, 5 * std::sqrt(0.3 * 0.7 / static_cast<double>(kCount)));
    EXPECT_EQ(count.updates, kCount);
    EXPECT_NEAR(static_cast<double>(count.vanished) / static_cast<double>(kCount), 1 - mean, 1e-12);
  });
}

}  // namespace
}  // namespace outrigger::kernels::test

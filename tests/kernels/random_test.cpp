// SPDX-License-Identifier: Apache-2.0
// Philox against the published known answers (Random123, kat_vectors), its counter layout, and the
// mean of stochastic rounding.
#include <cmath>

#include "kernels/reference/adam.h"
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
  expect_words(philox({{0, 0, 0, 0}}, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words(philox({{~0U, ~0U, ~0U, ~0U}}, ~uint64_t{0}),
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Philox, EightElementsShareABlockInOrder) {
  const uint64_t key = 0x0123456789abcdef, step = 0x1122334455667788, first = 0xabcdef0123450 * 8;
  const PhiloxBlock block =
      philox({{static_cast<uint32_t>(first / 8), static_cast<uint32_t>(first / 8 >> 32), 0x55667788,
               0x11223344}},
             key);
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(reference::random16(key, first + i, step),
              static_cast<uint16_t>(block.x[i / 2] >> (16 * (i % 2))));
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
    Adam a;
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
    a.random.weight_key = 0x5eed;
    const UpdateCount count = adam(a);
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

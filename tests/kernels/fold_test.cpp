// SPDX-License-Identifier: Apache-2.0
// fold: every instruction set against the oracle; the formula itself on numbers where order shows.
#include "kernels/reference/fold.h"

#include <limits>

#include "kernels/reference/norm.h"
#include "tests/kernels/support.h"

namespace outrigger::kernels::test {
namespace {

struct Case {
  Format source = Format::float32, accumulator = Format::float32;
  int32_t world = 1;
  bool add = false;
  int64_t count = kLeaf;
};

Fold make(const Case& c, const std::vector<const void*>& sources, Array& accumulator,
          NormSum* norm) {
  Fold fold;
  fold.sources = sources.data();
  fold.world = c.world;
  fold.source_format = c.source;
  fold.accumulator = accumulator.at();
  fold.accumulator_format = c.accumulator;
  fold.add = c.add;
  fold.count = c.count;
  fold.first_index = 4096;
  fold.norm = norm;
  return fold;
}

TEST(FoldTest, EveryTargetHasTheOraclesBitsAndNorm) {
  for_each_target([] {
    for (const Format source : kFormats) {
      for (const Format accumulator : kFormats) {
        for (const int32_t world : {1, 2, 3, 5}) {
          for (const bool add : {false, true}) {
            for (const Values values : {Values::ordinary, Values::any}) {
              const Case c = {source, accumulator, world, add, 3 * kLeaf};
              std::vector<Array> ranks;
              std::vector<const void*> sources;
              for (int32_t r = 0; r < world; ++r) {
                ranks.emplace_back(source, c.count, r);
                fill(ranks.back(), values, static_cast<uint64_t>(r + 10));
              }
              for (const Array& rank : ranks) sources.push_back(rank.at());
              Array got(accumulator, c.count, 1);
              fill(got, values, 99);
              Array want = got, no_norm = got;
              NormSum got_norm, want_norm;
              fold(make(c, sources, got, &got_norm));
              fold(make(c, sources, no_norm, nullptr));
              reference::fold(make(c, sources, want, &want_norm));
              expect_same_bits(got, want);
              expect_same_bits(no_norm, want);
              EXPECT_EQ(got_norm.limbs, want_norm.limbs);
              EXPECT_EQ(got_norm.nonfinite, want_norm.nonfinite);
              EXPECT_EQ(got_norm.first_nonfinite, want_norm.first_nonfinite);
            }
          }
        }
      }
    }
  });
}

TEST(FoldTest, AddsInRankOrderInFloat32AndRoundsOnce) {
  for_each_target([] {
    // (1e8 + -1e8) + 1 = 1 in rank order; any other order gives 0.
    Array a(Format::float32, kLeaf), b = a, c = a;
    for (int64_t i = 0; i < kLeaf; ++i) {
      a.set(i, 1e8F);
      b.set(i, -1e8F);
      c.set(i, 1.0F);
    }
    Array into(Format::bfloat16, kLeaf);
    for (int64_t i = 0; i < kLeaf; ++i) into.set_value(i, 2.0F);
    NormSum norm;
    fold(make({Format::float32, Format::bfloat16, 3, false, kLeaf}, {a.at(), b.at(), c.at()}, into,
              &norm));
    for (int64_t i = 0; i < kLeaf; ++i) ASSERT_EQ(into.value(i), 1.0F);
    EXPECT_EQ(value_of(norm), 256.0);

    // 1 + 3 * 2^-9 in bfloat16: rounded once (to 1 + 2^-7), where rounding each addition would stay
    // at 1.
    for (int64_t i = 0; i < kLeaf; ++i) a.set(i, 0x1p-9F);
    const Case accumulate = {Format::float32, Format::bfloat16, 3, true, kLeaf};
    NormSum second;
    fold(make(accumulate, {a.at(), a.at(), a.at()}, into, &second));
    for (int64_t i = 0; i < kLeaf; ++i) ASSERT_EQ(into.value(i), 1.0078125F);
    EXPECT_EQ(value_of(second), 256 * 1.0078125 * 1.0078125) << "the norm is of what was stored";
  });
}

TEST(FoldTest, ASourceMayBeTheAccumulator) {
  for_each_target([] {
    for (const Format format : {Format::float32, Format::bfloat16}) {
      Array x(format, 4 * kLeaf), y = x, want = x;
      fill(x, Values::ordinary, 1);
      fill(y, Values::ordinary, 2);
      const Case c = {format, format, 2, false, 4 * kLeaf};
      reference::fold(make(c, {x.at(), y.at()}, want, nullptr));
      fold(make(c, {x.at(), y.at()}, x, nullptr));
      expect_same_bits(x, want);
    }
  });
}

TEST(FoldTest, ReportsTheFirstNonFiniteElement) {
  for_each_target([] {
    Array a(Format::bfloat16, 2 * kLeaf), into(Format::bfloat16, 2 * kLeaf);
    fill(a, Values::ordinary, 5);
    a.set_value(300, std::numeric_limits<float>::max());  // overflows in the sum of two
    NormSum norm;
    fold(make({Format::bfloat16, Format::bfloat16, 2, false, 2 * kLeaf}, {a.at(), a.at()}, into,
              &norm));
    EXPECT_EQ(norm.nonfinite, 1);
    EXPECT_EQ(norm.first_nonfinite, 4096 + 300);
  });
}

}  // namespace
}  // namespace outrigger::kernels::test

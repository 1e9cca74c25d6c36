// SPDX-License-Identifier: Apache-2.0
// adam: every instruction set against the oracle in every combination of formats, roundings and
// modes; slices against the whole; the published copy; the counters.
#include <cmath>
#include <limits>

#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

// No decay, decoupled, L2, and a learning rate of zero.
std::vector<UpdateScalars> modes() {
  UpdateScalars none = ordinary_scalars(), l2 = none, decoupled = none, resting = none;
  none.minus_lr_decay = 0;
  l2.decoupled = false;
  resting.minus_step = 0;
  resting.minus_lr_decay = -0.0F;
  return {none, l2, decoupled, resting};
}

void compare(const AdamFormats& formats, const UpdateScalars& scalars, int64_t count,
             Values values) {
  Parameter got(formats, count, count % 3, values, static_cast<uint64_t>(count) + 7);
  got.publish = count % 2 == 0;
  Parameter want = got;
  const UpdateCount g = update(got.step(scalars));
  const UpdateCount w = reference::update(want.step(scalars));
  expect_same_bits(got, want);
  EXPECT_EQ(g.updates, w.updates);
  EXPECT_EQ(g.vanished, w.vanished);
}

TEST(AdamTest, EveryTargetHasTheOraclesBitsInEveryFormat) {
  for_each_target([] {
    for (const AdamFormats& formats : all_adam_formats()) {
      for (const UpdateScalars& scalars : modes()) {
        compare(formats, scalars, 515, Values::ordinary);
        compare(formats, scalars, 1024, Values::any);
      }
    }
  });
}

TEST(AdamTest, EveryTargetHasTheOraclesBitsAtEverySize) {
  const Rounding s = Rounding::stochastic;
  const std::vector<AdamFormats> chosen = {
      {},
      {Format::split, Format::bfloat16, Format::bfloat16, Format::bfloat16, {}, s, s},
      {Format::split, Format::block8, Format::positive_block8, Format::float32, {}, s, s},
      {Format::bfloat16, Format::bfloat16, Format::bfloat16, Format::bfloat16, s, s, s},
      {Format::bfloat16, Format::float32, Format::bfloat16, Format::float32, s, s, s}};
  for_each_target([&] {
    for (const AdamFormats& formats : chosen) {
      for (const int64_t count : kSizes) compare(formats, ordinary_scalars(), count, Values::any);
    }
  });
}

TEST(AdamTest, SlicesAtLeavesGiveTheBitsOfTheWhole) {
  const int64_t count = 9 * kLeaf + 77;
  for_each_target([&] {
    for (const AdamFormats& formats : all_adam_formats()) {
      Parameter whole(formats, count, 0, Values::ordinary, 5);
      Parameter cut = whole;
      const UpdateCount want = update(whole.step(ordinary_scalars()));
      UpdateCount got;
      int64_t first = 0;
      for (const int64_t leaves : {1, 3, 2, 1, 100}) {
        const int64_t n = std::min(leaves * kLeaf, count - first);
        const UpdateCount part = update(cut.step(ordinary_scalars(), first, n));
        got.updates += part.updates;
        got.vanished += part.vanished;
        first += n;
      }
      ASSERT_EQ(first, count);
      expect_same_bits(cut, whole);
      EXPECT_EQ(got.updates, want.updates);
      EXPECT_EQ(got.vanished, want.vanished);
    }
  });
}

TEST(AdamTest, PublishesTheNewFloat32WeightRounded) {
  for_each_target([] {
    Parameter p({}, 1000, 1, Values::ordinary, 6);
    (void)update(p.step(ordinary_scalars()));
    for (int64_t i = 0; i < 1000; ++i) {
      ASSERT_EQ(p.published.get<uint16_t>(i), reference::round_to_bfloat16(p.weight.get<float>(i)));
    }
  });
}

TEST(AdamTest, PaddingStaysZeroAndIsNoUpdate) {
  for_each_target([] {
    for (const AdamFormats& formats : all_adam_formats()) {
      for (const UpdateScalars& scalars : modes()) {
        Parameter p(formats, 300, 0, Values::ordinary, 6);
        for (Array* a :
             {&p.weight, &p.remainder, &p.exp_avg, &p.exp_avg_sq, &p.grad, &p.published}) {
          *a = Array(a->format(), 300);
        }
        const UpdateCount count = update(p.step(scalars));
        const std::vector<float> zeros(300);
        for (const Array* a : {&p.weight, &p.exp_avg, &p.exp_avg_sq}) {
          ASSERT_EQ(a->values(), zeros);
          for (const float x : a->values()) ASSERT_FALSE(std::signbit(x) && a != &p.weight);
        }
        for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(p.remainder.bits(i), 0U);
        EXPECT_EQ(count.updates, 0);
        EXPECT_EQ(count.vanished, 0);
      }
    }
  });
}

// A split master is a float32 one: the same weights after any number of steps, and what is
// published is the nearest bfloat16, a tie away from zero.
TEST(AdamTest, ASplitMasterIsAFloat32Master) {
  for_each_target([] {
    for (const AdamFormats& formats : all_adam_formats()) {
      if (formats.weight != Format::split) continue;
      AdamFormats whole = formats;
      whole.weight = Format::float32;
      Parameter halves(formats, 777, 0, Values::ordinary, 3), p(whole, 777, 0, Values::ordinary, 3);
      std::vector<uint16_t> published(777), rest(777);
      for (int t = 0; t < 6; ++t) {
        split(static_cast<uint16_t*>(halves.weight.at()),
              static_cast<uint16_t*>(halves.remainder.at()), p.weight.values().data(), 777);
        const UpdateCount got = update(halves.step(ordinary_scalars()));
        const UpdateCount want = update(p.step(ordinary_scalars()));
        EXPECT_EQ(got.vanished, want.vanished);
        std::vector<float> joined(777);
        join(joined.data(), static_cast<uint16_t*>(halves.weight.at()),
             static_cast<uint16_t*>(halves.remainder.at()), 777);
        ASSERT_EQ(joined, p.weight.values());
        expect_same_bits(halves.exp_avg, p.exp_avg);
        expect_same_bits(halves.exp_avg_sq, p.exp_avg_sq);
        for (int64_t i = 0; i < 777; ++i) {
          const float x = p.weight.get<float>(i), y = halves.weight.value(i);
          ASSERT_LE(std::fabs(y - x), std::fabs(x) * 0x1p-8F);
        }
      }
    }
  });
}

// Weights 1, gradients 1, moments 0: m/denom is 1, so each weight moves by exactly the step.
UpdateCount unit_step(Format weight_format, float step, float decay, int64_t zeros) {
  AdamFormats formats;
  formats.weight = weight_format;
  Parameter p(formats, 512, 0, Values::ordinary, 1);
  for (int64_t i = 0; i < 512; ++i) {
    p.weight.set_value(i, 1.0F);
    p.exp_avg.set_value(i, 0);
    p.exp_avg_sq.set_value(i, 0);
    p.grad.set_value(i, i < zeros ? 0.0F : 1.0F);
  }
  UpdateScalars s;
  s.beta1 = s.beta2 = 0;
  s.one_minus_beta1 = s.one_minus_beta2 = 1;
  s.eps = 1e-30F;
  s.minus_step = step;
  s.minus_lr_decay = decay;
  return update(p.step(s));
}

TEST(AdamTest, CountsUpdatesThatVanish) {
  for_each_target([] {
    // Half a bfloat16 step below 1 is 2^-9: less vanishes, more moves.
    UpdateCount c = unit_step(Format::bfloat16, -0x1p-10F, 0, 100);
    EXPECT_EQ(c.updates, 412);
    EXPECT_EQ(c.vanished, 412);
    c = unit_step(Format::bfloat16, -0x1p-8F, 0, 100);
    EXPECT_EQ(c.updates, 412);
    EXPECT_EQ(c.vanished, 0);
    // float32 loses updates in the addition itself.
    c = unit_step(Format::float32, -0x1p-26F, 0, 0);
    EXPECT_EQ(c.updates, 512);
    EXPECT_EQ(c.vanished, 512);
    c = unit_step(Format::float32, -0x1p-20F, 0, 0);
    EXPECT_EQ(c.vanished, 0);
    // A decoupled decay is an update, too; without a step it is the only one.
    c = unit_step(Format::bfloat16, 0, -0x1p-10F, 100);
    EXPECT_EQ(c.updates, 512);
    EXPECT_EQ(c.vanished, 512);
    c = unit_step(Format::bfloat16, 0, 0, 0);
    EXPECT_EQ(c.updates, 0);
    EXPECT_EQ(c.vanished, 0);
    // Elements with neither gradient nor decay are not updates; with decay they are, and here it
    // shows.
    c = unit_step(Format::float32, -0x1p-26F, -0x1p-20F, 100);
    EXPECT_EQ(c.updates, 512);
    EXPECT_EQ(c.vanished, 0);
  });
}

TEST(AdamTest, NansAreStoredCanonical) {
  for_each_target([] {
    for (const Format format : {Format::float32, Format::bfloat16}) {
      const AdamFormats formats = {format, format, format, Format::float32};
      Parameter p(formats, 512, 0, Values::ordinary, 8);
      p.grad.set(13, uint32_t{0xffabcdef});
      p.grad.set(14, std::numeric_limits<float>::infinity());
      p.exp_avg_sq.set_value(15, -1.0F);  // a square root of a negative number
      (void)update(p.step(ordinary_scalars()));
      const uint64_t nan = format == Format::float32 ? 0x7fc00000 : 0x7fc0;
      for (const int64_t i : {13, 14, 15}) EXPECT_EQ(p.weight.bits(i), nan);
      for (const Array* a : {&p.exp_avg, &p.exp_avg_sq}) EXPECT_EQ(a->bits(13), nan);
      EXPECT_TRUE(std::isinf(p.exp_avg.value(14)));
      EXPECT_TRUE(std::isfinite(p.weight.value(12)));
      EXPECT_TRUE(std::isfinite(p.weight.value(16)));
    }
  });
}

}  // namespace
}  // namespace outrigger::kernels::test

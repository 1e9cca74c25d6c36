// SPDX-License-Identifier: Apache-2.0
// Every rule: each instruction set against the oracle in every combination of formats and modes;
// slices against the whole; the oracle against the published algorithms in float64.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

struct Variant {
  const char* name;
  Rule rule;
  bool momentum = true;
};
constexpr Variant kVariants[] = {{"Adam", Rule::adam},         {"Adagrad", Rule::adagrad},
                                 {"Lion", Rule::lion},         {"SGD", Rule::sgd, false},
                                 {"SGD, momentum", Rule::sgd}, {"LAMB", Rule::lamb}};

// Decoupled, L2 with Nesterov, and clipped by value without a decay.
std::vector<UpdateScalars> modes() {
  UpdateScalars decoupled = ordinary_scalars(), l2 = decoupled, clipped = decoupled;
  l2.decoupled = false;
  l2.nesterov = true;
  l2.inverse_bias1 = 2.5F;
  clipped.clip_value = 0.02F;
  clipped.minus_lr_decay = clipped.weight_decay = 0;
  return {decoupled, l2, clipped};
}

Parameter parameter_of(const Variant& v, const AdamFormats& formats, int64_t count, Values values,
                       uint64_t seed = 7) {
  Parameter p(formats, count, count % 3, values, seed);
  p.rule = v.rule;
  p.momentum = v.momentum;
  return p;
}

void expect_equal_sums(const NormSum& got, const NormSum& want) {
  EXPECT_EQ(got.limbs, want.limbs);
  EXPECT_EQ(got.nonfinite, want.nonfinite);
}

void compare(const Variant& v, const AdamFormats& formats, const UpdateScalars& scalars,
             int64_t count, Values values) {
  Parameter got = parameter_of(v, formats, count, values), want = got;
  if (v.rule == Rule::lamb) {
    NormSum w, d, want_w, want_d;
    lamb_norms(got.step(scalars), w, d);
    reference::lamb_norms(want.step(scalars), want_w, want_d);
    expect_equal_sums(w, want_w);
    expect_equal_sums(d, want_d);
    expect_same_bits(got, want);
  }
  const UpdateCount g = update(got.step(scalars)), w = reference::update(want.step(scalars));
  expect_same_bits(got, want);
  EXPECT_EQ(g.updates, w.updates);
  EXPECT_EQ(g.vanished, w.vanished);
}

TEST(Rules, EveryTargetHasTheOraclesBits) {
  const std::vector<AdamFormats> formats = all_adam_formats();
  for_each_target([&] {
    for (const Variant& v : kVariants) {
      SCOPED_TRACE(v.name);
      for (size_t i = 0; i < formats.size(); ++i) {
        // Gradients' formats have a period of 3, too.
        const UpdateScalars scalars = modes()[(i + i / 3) % 3];
        compare(v, formats[i], scalars, 515, Values::ordinary);
        compare(v, formats[i], scalars, 512, Values::any);
      }
      for (const int64_t count : kSizes) {
        compare(v, formats[static_cast<size_t>(count) % formats.size()], modes()[0], count,
                Values::any);
      }
    }
  });
}

TEST(Rules, SlicesAtLeavesGiveTheBitsAndNormsOfTheWhole) {
  const int64_t count = 9 * kLeaf + 77;
  for_each_target([&] {
    for (const Variant& v : kVariants) {
      for (const AdamFormats& formats : all_adam_formats()) {
        if (formats.grad != Format::bfloat16) continue;
        Parameter whole = parameter_of(v, formats, count, Values::ordinary), cut = whole;
        const UpdateScalars s = ordinary_scalars();
        NormSum w, d, cut_w, cut_d;
        if (v.rule == Rule::lamb) lamb_norms(whole.step(s), w, d);
        (void)update(whole.step(s));
        for (const int64_t first : {7 * kLeaf, int64_t{0}, 2 * kLeaf}) {  // in any order
          const int64_t n = first == 0 ? 2 * kLeaf : first == 2 * kLeaf ? 5 * kLeaf : count - first;
          if (v.rule == Rule::lamb) lamb_norms(cut.step(s, first, n), cut_w, cut_d);
          (void)update(cut.step(s, first, n));
        }
        expect_same_bits(cut, whole);
        expect_equal_sums(cut_w, w);
        expect_equal_sums(cut_d, d);
      }
    }
  });
}

// What a rule computes, from its paper, in float64.
struct Exact {
  double theta = 0, m = 0, v = 0;
};
struct Published {
  const char* name;
  Variant variant;
  UpdateScalars (*scalars)(int t);
  void (*step)(Exact& e, double g, int t);
  double tolerance;  // of the weight, relative to the sum of all steps
};

constexpr double kLr = 1e-2, kDecay = 0.1;

UpdateScalars plain() {
  UpdateScalars s;
  s.minus_step = static_cast<float>(-kLr);
  s.weight_decay = static_cast<float>(kDecay);
  s.decoupled = false;
  return s;
}

// Duchi, Hazan & Singer 2011, diagonal; L2 decay as in PyTorch.
UpdateScalars adagrad_scalars(int) {
  UpdateScalars s = plain();
  s.eps = 1e-10F;
  return s;
}
void adagrad(Exact& e, double g, int) {
  g += kDecay * e.theta;
  e.v += g * g;
  e.theta -= kLr * g / (std::sqrt(e.v) + 1e-10);
}

// Chen et al. 2023, algorithm 2.
UpdateScalars lion_scalars(int) {
  UpdateScalars s = plain();
  s.decoupled = true;
  s.minus_lr_decay = static_cast<float>(-kLr * kDecay);
  s.beta2 = 0.99F;
  s.one_minus_beta2 = 0.01F;
  return s;
}
void lion(Exact& e, double g, int) {
  const double c = 0.9 * e.m + 0.1 * g;
  e.theta -= kLr * ((c > 0 ? 1 : c < 0 ? -1 : 0) + kDecay * e.theta);
  e.m = 0.99 * e.m + 0.01 * g;
}

// PyTorch's SGD: the first gradient is the first momentum, whatever the dampening.
UpdateScalars sgd_scalars(int t) {
  UpdateScalars s = plain();
  s.one_minus_beta1 = t == 1 ? 1.0F : 0.75F;
  return s;
}
void sgd(Exact& e, double g, int t) {
  g += kDecay * e.theta;
  e.m = t == 1 ? g : 0.9 * e.m + 0.75 * g;
  e.theta -= kLr * e.m;
}
UpdateScalars nesterov_scalars(int) {
  UpdateScalars s = plain();
  s.one_minus_beta1 = 1;
  s.nesterov = true;
  return s;
}
void nesterov(Exact& e, double g, int) {
  g += kDecay * e.theta;
  e.m = 0.9 * e.m + g;
  e.theta -= kLr * (g + 0.9 * e.m);
}
UpdateScalars plain_scalars(int) { return plain(); }
void descent(Exact& e, double g, int) { e.theta -= kLr * (g + kDecay * e.theta); }

constexpr Published kPublished[] = {
    {"Adagrad", kVariants[1], adagrad_scalars, adagrad, 1e-5},
    {"Lion", kVariants[2], lion_scalars, lion, 1e-5},
    {"SGD", kVariants[3], plain_scalars, descent, 1e-5},
    {"momentum", kVariants[4], sgd_scalars, sgd, 1e-5},
    {"Nesterov", kVariants[4], nesterov_scalars, nesterov, 1e-5},
};

TEST(Rules, FollowThePublishedAlgorithms) {
  constexpr int64_t kCount = 700;
  constexpr int kSteps = 60;
  for_each_target([&] {
    for (const Published& rule : kPublished) {
      SCOPED_TRACE(rule.name);
      Parameter p = parameter_of(rule.variant, {}, kCount, Values::ordinary);
      std::vector<Exact> exact(kCount);
      for (int64_t i = 0; i < kCount; ++i) {
        p.exp_avg.set_value(i, 0);
        p.exp_avg_sq.set_value(i, 0);
        exact[static_cast<size_t>(i)].theta = static_cast<double>(p.weight.value(i));
      }
      for (int t = 1; t <= kSteps; ++t) {
        fill(p.grad, Values::ordinary, static_cast<uint64_t>(t));
        for (int64_t i = 0; i < kCount; ++i) {
          rule.step(exact[static_cast<size_t>(i)], static_cast<double>(p.grad.value(i)), t);
        }
        const UpdateCount count = update(p.step(rule.scalars(t)));
        EXPECT_EQ(count.updates, kCount);
      }
      for (int64_t i = 0; i < kCount; ++i) {
        const Exact& e = exact[static_cast<size_t>(i)];
        ASSERT_NEAR(static_cast<double>(p.weight.value(i)), e.theta, rule.tolerance * kLr * kSteps);
        if (has_exp_avg(p.rule, p.momentum)) {
          ASSERT_NEAR(static_cast<double>(p.exp_avg.value(i)), e.m, 1e-5);
        }
        if (has_exp_avg_sq(p.rule)) {
          ASSERT_NEAR(static_cast<double>(p.exp_avg_sq.value(i)), e.v, 1e-5 * e.v);
        }
      }
    }
  });
}

// You et al. 2020, algorithm 2, with the trust ratio of one layer; its norms are exact sums.
TEST(Rules, LambFollowsThePublishedAlgorithm) {
  constexpr int64_t kCount = 700;
  constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-6;
  for_each_target([&] {
    Parameter p = parameter_of({"LAMB", Rule::lamb}, {}, kCount, Values::ordinary);
    std::vector<Exact> exact(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      p.exp_avg.set_value(i, 0);
      p.exp_avg_sq.set_value(i, 0);
      exact[static_cast<size_t>(i)].theta = static_cast<double>(p.weight.value(i));
    }
    for (int t = 1; t <= 40; ++t) {
      fill(p.grad, Values::ordinary, static_cast<uint64_t>(t));
      double weights = 0, directions = 0;
      std::vector<double> direction(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        Exact& e = exact[i];
        const auto g = static_cast<double>(p.grad.value(static_cast<int64_t>(i)));
        e.m = kBeta1 * e.m + (1 - kBeta1) * g;
        e.v = kBeta2 * e.v + (1 - kBeta2) * g * g;
        const double v_hat = e.v / (1 - std::pow(kBeta2, t));
        direction[i] =
            e.m / (1 - std::pow(kBeta1, t)) / (std::sqrt(v_hat) + kEps) + kDecay * e.theta;
        weights += e.theta * e.theta;
        directions += direction[i] * direction[i];
      }
      UpdateScalars s;
      s.eps = static_cast<float>(kEps);
      s.inverse_bias1 = static_cast<float>(1 / (1 - std::pow(kBeta1, t)));
      s.inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, t)));
      s.weight_decay = static_cast<float>(kDecay);
      NormSum w, d;
      lamb_norms(p.step(s), w, d);
      EXPECT_NEAR(value_of(w) / weights, 1, 1e-5);
      EXPECT_NEAR(value_of(d) / directions, 1, 1e-5);
      s.minus_step = static_cast<float>(-kLr * std::sqrt(value_of(w) / value_of(d)));
      (void)update(p.step(s));
      for (size_t i = 0; i < kCount; ++i) {
        exact[i].theta -= kLr * std::sqrt(weights / directions) * direction[i];
      }
    }
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(static_cast<double>(p.weight.value(i)), exact[static_cast<size_t>(i)].theta,
                  1e-6);
    }
  });
}

// The gradient is clipped after it was unscaled; a NaN is beyond no limit and stays one.
TEST(Rules, ClipsByValue) {
  for_each_target([] {
    Parameter p = parameter_of({"SGD", Rule::sgd, false}, {}, 4, Values::ordinary);
    const float grads[] = {3, -5, 0.5F, std::numeric_limits<float>::quiet_NaN()};
    for (int64_t i = 0; i < 4; ++i) {
      p.weight.set(i, 1.0F);
      p.grad.set(i, grads[i]);
    }
    UpdateScalars s;
    s.gradient_factor = 0.5F;
    s.clip_value = 1;
    s.minus_step = -1;
    EXPECT_EQ(update(p.step(s)).updates, 4);
    EXPECT_EQ(p.weight.get<float>(0), 0.0F);
    EXPECT_EQ(p.weight.get<float>(1), 2.0F);
    EXPECT_EQ(p.weight.get<float>(2), 0.75F);
    EXPECT_TRUE(std::isnan(p.weight.get<float>(3)));
  });
}

}  // namespace
}  // namespace outrigger::kernels::test

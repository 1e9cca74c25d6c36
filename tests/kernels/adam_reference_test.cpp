// SPDX-License-Identifier: Apache-2.0
// adam against the published algorithms in float64: Adam (Kingma & Ba 2015, algorithm 1) with L2
// decay in the gradient, and AdamW (Loshchilov & Hutter 2019, algorithm 2, schedule multiplier 1),
// whose decay is multiplied by the learning rate as in PyTorch. Written from the papers, not from
// the kernel.
#include <cmath>

#include "tests/kernels/update_cases.h"

namespace outrigger::kernels::test {
namespace {

struct Hyperparameters {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1;
  bool decoupled = true;
};

struct Exact {
  double theta = 0, m = 0, v = 0;

  void step(const Hyperparameters& h, double gradient, int t) {
    if (h.decoupled) {
      theta -= h.lr * h.decay * theta;
    } else {
      gradient += h.decay * theta;
    }
    m = h.beta1 * m + (1 - h.beta1) * gradient;
    v = h.beta2 * v + (1 - h.beta2) * gradient * gradient;
    const double m_hat = m / (1 - std::pow(h.beta1, t)), v_hat = v / (1 - std::pow(h.beta2, t));
    theta -= h.lr * m_hat / (std::sqrt(v_hat) + h.eps);
  }
};

UpdateScalars scalars_of(const Hyperparameters& h, int t) {
  UpdateScalars s;
  s.beta1 = static_cast<float>(h.beta1);
  s.one_minus_beta1 = static_cast<float>(1 - h.beta1);
  s.beta2 = static_cast<float>(h.beta2);
  s.one_minus_beta2 = static_cast<float>(1 - h.beta2);
  s.eps = static_cast<float>(h.eps);
  s.inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(h.beta2, t)));
  s.minus_step = static_cast<float>(-h.lr / (1 - std::pow(h.beta1, t)));
  s.weight_decay = static_cast<float>(h.decay);
  s.minus_lr_decay = static_cast<float>(-h.lr * h.decay);
  s.decoupled = h.decoupled;
  return s;
}

// Runs `steps` steps with changing gradients; returns the largest |weight error| / lr and the
// largest relative errors of the moments.
struct Errors {
  double weight = 0, exp_avg = 0, exp_avg_sq = 0;
};

Errors run(const Hyperparameters& h, const AdamFormats& formats, int steps) {
  constexpr int64_t kCount = 1000;
  Parameter p(formats, kCount, 0, Values::ordinary, 11);
  std::vector<Exact> exact(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    p.exp_avg.set_value(i, 0);
    p.exp_avg_sq.set_value(i, 0);
    exact[static_cast<size_t>(i)].theta = static_cast<double>(p.weight.value(i));
  }
  for (int t = 1; t <= steps; ++t) {
    fill(p.grad, Values::ordinary, static_cast<uint64_t>(1000 + t));
    for (int64_t i = 0; i < kCount; ++i) {
      exact[static_cast<size_t>(i)].step(h, static_cast<double>(p.grad.value(i)), t);
    }
    p.random.step = static_cast<uint64_t>(t - 1);
    (void)update(p.step(scalars_of(h, t)));
  }
  Errors worst;
  for (int64_t i = 0; i < kCount; ++i) {
    const Exact& e = exact[static_cast<size_t>(i)];
    const auto difference = [&](const Array& a, double want) {
      return std::fabs(static_cast<double>(a.value(i)) - want);
    };
    worst.weight = std::max(worst.weight, difference(p.weight, e.theta));
    worst.exp_avg = std::max(worst.exp_avg, difference(p.exp_avg, e.m));
    worst.exp_avg_sq = std::max(worst.exp_avg_sq, difference(p.exp_avg_sq, e.v) / e.v);
  }
  return worst;
}

// float32: each step rounds a weight below 1 by at most 2^-25, and the quotient, of size up to 1,
// by a few 2^-24 of a step of lr.
TEST(AdamReference, Float32FollowsThePublishedFormulas) {
  for_each_target([] {
    for (const bool decoupled : {true, false}) {
      Hyperparameters h;
      h.decoupled = decoupled;
      const int steps = 20;
      const Errors e = run(h, {}, steps);
      EXPECT_LT(e.weight, steps * (0x1p-25 + 20 * h.lr * 0x1p-24));
      EXPECT_LT(e.exp_avg, steps * 4 * 0x1p-24 * 0.5);
      EXPECT_LT(e.exp_avg_sq, steps * 6 * 0x1p-24);
      EXPECT_GT(e.weight, 0) << "float32 that equals float64 was not computed";
    }
  });
}

// bfloat16 states: each store is within one unit of the last place, 2^-8 of the value (nearest:
// half that).
TEST(AdamReference, Bfloat16StaysWithinItsRounding) {
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    const AdamFormats formats = {Format::bfloat16, Format::bfloat16, Format::bfloat16,
                                 Format::bfloat16, rounding,         rounding,
                                 rounding};
    for_each_target([&] {
      for (const bool decoupled : {true, false}) {
        Hyperparameters h;
        h.decoupled = decoupled;
        h.lr = 1e-2;
        const double unit = rounding == Rounding::nearest ? 0x1p-9 : 0x1p-8;
        const int steps = 5;
        const Errors e = run(h, formats, steps);
        // Weights stay below 0.6 here; relative errors of both moments enter the step of size lr,
        // whose bias-corrected quotient is at most 1/sqrt(1 - beta2) in theory and below 2 on these
        // gradients.
        EXPECT_LT(e.weight, steps * (0.6 * unit + 2 * h.lr * 4 * steps * unit));
        EXPECT_LT(e.exp_avg_sq, steps * 1.1 * unit);
        EXPECT_LT(e.exp_avg, steps * 0.2 * unit);
        EXPECT_GT(e.weight, 0x1p-14) << "a bfloat16 weight must show its rounding";
      }
    });
  }
}

}  // namespace
}  // namespace outrigger::kernels::test

// SPDX-License-Identifier: Apache-2.0
// One Adam or AdamW step of one element, in float32; every fma() below is one rounding, every other
// operation is one rounding of its own.
//
//   g     = float32(grad) * gradient_factor
//   g     = fma(weight_decay, p, g)                      L2 mode, weight_decay != 0
//   m     = fma(beta1, m, one_minus_beta1 * g)
//   v     = fma(beta2, v, (one_minus_beta2 * g) * g)
//   denom = fma(sqrt(v), inverse_sqrt_bias2, eps)
//   p'    = fma(p, minus_lr_decay, p)                    decoupled mode, minus_lr_decay != 0; else
//   p p''   = fma(minus_step, m / denom, p')
//
// (Kingma & Ba 2015; Loshchilov & Hutter 2019; the placement of eps and of the bias corrections is
// DeepSpeed's CPUAdam.) The update reads the float32 m and v; p'', m and v are then stored, each
// rounded to its format by its rounding. A NaN among them is stored canonical.
//
// An element has an *update* if minus_step and m/denom are both not zero, or if a decoupled decay
// applies and p is not zero. The update *vanished* if the stored weight still equals p: the
// addition rounded it away (a float32 weight, too), or the rounding to the weight's format did. A
// NaN equals nothing.
#pragma once

#include "kernels/reference/philox.h"

namespace outrigger::kernels::reference {

struct AdamElement {
  float weight, exp_avg, exp_avg_sq;
  bool update;
};

OTR_ELEMENTWISE AdamElement adam_element(const AdamScalars& s, float grad, float p, float m,
                                         float v) {
  float g = grad * s.gradient_factor;
  if (!s.decoupled && s.weight_decay != 0) g = std::fma(s.weight_decay, p, g);
  m = std::fma(s.beta1, m, s.one_minus_beta1 * g);
  v = std::fma(s.beta2, v, (s.one_minus_beta2 * g) * g);
  const float denominator = std::fma(std::sqrt(v), s.inverse_sqrt_bias2, s.eps);
  const float quotient = m / denominator;
  const bool decays = s.decoupled && s.minus_lr_decay != 0;
  const float decayed = decays ? std::fma(p, s.minus_lr_decay, p) : p;
  const float weight = std::fma(s.minus_step, quotient, decayed);
  const bool update = (s.minus_step != 0 && quotient != 0) || (decays && p != 0);
  return {canonical(weight), canonical(m), canonical(v), update};
}

// How one state is stored: nearest even, or by the random 16 bits of its element.
template <class State>
OTR_ELEMENTWISE typename State::Storage store_state(float x, Rounding rounding, uint64_t key,
                                                    uint64_t element, uint64_t step) {
  if constexpr (std::is_same_v<State, Element<Format::bfloat16>>) {
    if (rounding == Rounding::stochastic) {
      return round_to_bfloat16(x, random16(key, element, step));
    }
  }
  return State::store(x);
}

[[nodiscard]] UpdateCount adam(const Adam& adam);

}  // namespace outrigger::kernels::reference

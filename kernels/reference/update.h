// SPDX-License-Identifier: Apache-2.0
// One step of one element, in float32; every fma() below is one rounding, every other operation is
// one rounding of its own. p is the weight, m and v are exp_avg and exp_avg_sq.
//
//   g = float32(grad) * gradient_factor
//   g = at most clip_value, at least -clip_value         clip_value finite
//   g = fma(weight_decay, p, g)                          L2 mode, weight_decay != 0; not LAMB
//   q = fma(p, minus_lr_decay, p)                        decoupled mode, minus_lr_decay != 0; else
//   p
//
// Adam, AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019; the placement of eps and of the bias
// corrections is DeepSpeed's CPUAdam):
//   m = fma(beta1, m, one_minus_beta1 * g)
//   v = fma(beta2, v, (one_minus_beta2 * g) * g)
//   direction = m / fma(sqrt(v), inverse_sqrt_bias2, eps)
// Adagrad (Duchi, Hazan & Singer 2011):
//   v = fma(g, g, v)
//   direction = g / (sqrt(v) + eps)
// Lion (Chen et al. 2023):
//   direction = sign(fma(beta1, m, one_minus_beta1 * g))
//   m = fma(beta2, m, one_minus_beta2 * g)
// SGD (Sutskever et al. 2013, as PyTorch has it):
//   m = fma(beta1, m, one_minus_beta1 * g)               with momentum; else direction = g
//   direction = nesterov ? fma(beta1, m, g) : m
// LAMB (You et al. 2020), after lamb_norms() has updated m and v as Adam does:
//   direction = m / fma(sqrt(v), inverse_sqrt_bias2, eps) * inverse_bias1
//   direction = fma(weight_decay, p, direction)          weight_decay != 0
// Muon (Jordan et al. 2024), muon_direction() only, always decoupled:
//   m = fma(beta1, m, one_minus_beta1 * g)
//   direction = nesterov ? fma(beta1, m, one_minus_beta1 * g) : m
//
//   p' = fma(minus_step, direction, q)
//
// The direction reads the float32 m and v, LAMB's those that were stored; p', m and v are then
// stored, each rounded to its format by its rounding. A NaN among them is stored canonical.
//
// An element has an *update* if minus_step and the direction are both not zero, or if a decoupled
// decay applies and p is not zero. The update *vanished* if the stored weight has the bits of p:
// the addition rounded it away (a float32 weight, too), or the rounding to the weight's format did.
#pragma once

#include "kernels/reference/philox.h"

namespace outrigger::kernels::reference {

struct Stepped {
  float weight, exp_avg, exp_avg_sq;
  bool update;
};

OTR_ELEMENTWISE float gradient_of(Rule rule, const UpdateScalars& s, float grad, float p) {
  float g = grad * s.gradient_factor;
  if (g > s.clip_value) g = s.clip_value;
  if (g < -s.clip_value) g = -s.clip_value;
  const bool l2 = !s.decoupled && s.weight_decay != 0 && rule != Rule::lamb && rule != Rule::muon;
  return l2 ? std::fma(s.weight_decay, p, g) : g;
}

OTR_ELEMENTWISE void adam_moments(const UpdateScalars& s, float g, float& m, float& v) {
  m = std::fma(s.beta1, m, s.one_minus_beta1 * g);
  v = std::fma(s.beta2, v, (s.one_minus_beta2 * g) * g);
}

OTR_ELEMENTWISE float adam_direction(const UpdateScalars& s, float m, float v) {
  return m / std::fma(std::sqrt(v), s.inverse_sqrt_bias2, s.eps);
}

OTR_ELEMENTWISE float lamb_direction(const UpdateScalars& s, float p, float m, float v) {
  const float direction = adam_direction(s, m, v) * s.inverse_bias1;
  return s.weight_decay != 0 ? std::fma(s.weight_decay, p, direction) : direction;
}

OTR_ELEMENTWISE float muon_direction(const UpdateScalars& s, float g, float& m) {
  const float part = s.one_minus_beta1 * g;
  m = std::fma(s.beta1, m, part);
  return s.nesterov ? std::fma(s.beta1, m, part) : m;
}

OTR_ELEMENTWISE Stepped applied(const UpdateScalars& s, float direction, float p, float m,
                                float v) {
  const bool decays = s.decoupled && s.minus_lr_decay != 0;
  const float decayed = decays ? std::fma(p, s.minus_lr_decay, p) : p;
  const float weight = std::fma(s.minus_step, direction, decayed);
  const bool update = (s.minus_step != 0 && direction != 0) || (decays && p != 0);
  return {weight, m, v, update};
}

// A NaN in it may be any. has_momentum: of SGD.
OTR_ELEMENTWISE Stepped stepped_anyhow(Rule rule, const UpdateScalars& s, bool has_momentum,
                                       float grad, float p, float m, float v) {
  const float g = gradient_of(rule, s, grad, p);
  float direction = g;
  switch (rule) {
    case Rule::adam:
      adam_moments(s, g, m, v);
      direction = adam_direction(s, m, v);
      break;
    case Rule::adagrad:
      v = std::fma(g, g, v);
      direction = g / (std::sqrt(v) + s.eps);
      break;
    case Rule::lion:
      direction = std::fma(s.beta1, m, s.one_minus_beta1 * g);
      if (direction > 0) direction = 1;
      if (direction < 0) direction = -1;
      m = std::fma(s.beta2, m, s.one_minus_beta2 * g);
      break;
    case Rule::sgd:
      if (!has_momentum) break;
      m = std::fma(s.beta1, m, s.one_minus_beta1 * g);
      direction = s.nesterov ? std::fma(s.beta1, m, g) : m;
      break;
    case Rule::lamb:
      direction = lamb_direction(s, p, m, v);
      break;
    case Rule::muon:  // has no update of its own
      break;
  }
  return applied(s, direction, p, m, v);
}

OTR_ELEMENTWISE Stepped stepped(Rule rule, const UpdateScalars& s, bool has_momentum, float grad,
                                float p, float m, float v) {
  const Stepped e = stepped_anyhow(rule, s, has_momentum, grad, p, m, v);
  return {canonical(e.weight), canonical(e.exp_avg), canonical(e.exp_avg_sq), e.update};
}

[[nodiscard]] UpdateCount update(const Update& update);
void lamb_norms(const Update& update, NormSum& weights, NormSum& directions);
void muon_direction(const Update& update, float* direction);

}  // namespace outrigger::kernels::reference

// SPDX-License-Identifier: Apache-2.0
// Each rule on a vector; formulas in reference/update.h.

#if defined(OTR_KERNELS_CPU_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OTR_KERNELS_CPU_RULES_INL_H_
#undef OTR_KERNELS_CPU_RULES_INL_H_
#else
#define OTR_KERNELS_CPU_RULES_INL_H_
#endif

#include "kernels/cpu/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

enum class Decay { none, l2, decoupled };

// UpdateScalars as vectors.
struct Coefficients {
  explicit HWY_INLINE Coefficients(const UpdateScalars& s)
      : gradient_factor(set(s.gradient_factor)),
        clip_value(set(s.clip_value)),
        beta1(set(s.beta1)),
        one_minus_beta1(set(s.one_minus_beta1)),
        beta2(set(s.beta2)),
        one_minus_beta2(set(s.one_minus_beta2)),
        eps(set(s.eps)),
        inverse_bias1(set(s.inverse_bias1)),
        inverse_sqrt_bias2(set(s.inverse_sqrt_bias2)),
        minus_step(set(s.minus_step)),
        weight_decay(set(s.weight_decay)),
        clips(s.clip_value < __builtin_inff()),
        nesterov(s.nesterov),
        decays_direction(s.weight_decay != 0) {
    const float rate = s.decoupled ? s.minus_lr_decay : s.weight_decay;
    decay = rate == 0 ? Decay::none : s.decoupled ? Decay::decoupled : Decay::l2;
    decay_rate = set(rate);
    step_mask = mask(s.minus_step != 0);
    decay_mask = mask(decay == Decay::decoupled);
  }

  VF gradient_factor, clip_value, beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  VF inverse_bias1, inverse_sqrt_bias2, minus_step, weight_decay, decay_rate;
  VF step_mask, decay_mask;  // of a magnitude, where a step, a decoupled decay applies
  bool clips, nesterov, decays_direction;
  Decay decay;

 private:
  static HWY_INLINE VF set(float x) { return hn::Set(DF{}, x); }
  static HWY_INLINE VF mask(bool on) {
    return hn::BitCast(DF{}, hn::Set(DU{}, on ? 0x7fffffffU : 0U));
  }
};

HWY_INLINE VF gradient(const Coefficients& c, VF grad, VF p, bool l2) {
  VF g = hn::Mul(grad, c.gradient_factor);
  if (c.clips) {  // a NaN is beyond nothing
    g = hn::IfThenElse(hn::Gt(g, c.clip_value), c.clip_value, g);
    const VF least = hn::Neg(c.clip_value);
    g = hn::IfThenElse(hn::Lt(g, least), least, g);
  }
  return l2 ? hn::MulAdd(c.decay_rate, p, g) : g;
}

HWY_INLINE void adam_moments(const Coefficients& c, VF g, VF& m, VF& v) {
  m = hn::MulAdd(c.beta1, m, hn::Mul(c.one_minus_beta1, g));
  v = hn::MulAdd(c.beta2, v, hn::Mul(hn::Mul(c.one_minus_beta2, g), g));
}

HWY_INLINE VF adam_direction(const Coefficients& c, VF m, VF v) {
  return hn::Div(m, hn::MulAdd(hn::Sqrt(v), c.inverse_sqrt_bias2, c.eps));
}

HWY_INLINE VF lamb_direction(const Coefficients& c, VF p, VF m, VF v) {
  const VF direction = hn::Mul(adam_direction(c, m, v), c.inverse_bias1);
  return c.decays_direction ? hn::MulAdd(c.weight_decay, p, direction) : direction;
}

struct AdamRule {
  static HWY_INLINE VF direction(const Coefficients& c, VF g, VF, VF& m, VF& v) {
    adam_moments(c, g, m, v);
    return adam_direction(c, m, v);
  }
};

struct AdagradRule {
  static HWY_INLINE VF direction(const Coefficients& c, VF g, VF, VF&, VF& v) {
    v = hn::MulAdd(g, g, v);
    return hn::Div(g, hn::Add(hn::Sqrt(v), c.eps));
  }
};

struct LionRule {
  static HWY_INLINE VF direction(const Coefficients& c, VF g, VF, VF& m, VF&) {
    const DF df;
    VF d = hn::MulAdd(c.beta1, m, hn::Mul(c.one_minus_beta1, g));
    d = hn::IfThenElse(hn::Gt(d, hn::Zero(df)), hn::Set(df, 1.0F), d);
    d = hn::IfThenElse(hn::Lt(d, hn::Zero(df)), hn::Set(df, -1.0F), d);
    m = hn::MulAdd(c.beta2, m, hn::Mul(c.one_minus_beta2, g));
    return d;
  }
};

struct SgdRule {
  static HWY_INLINE VF direction(const Coefficients&, VF g, VF, VF&, VF&) { return g; }
};

struct MomentumRule {
  static HWY_INLINE VF direction(const Coefficients& c, VF g, VF, VF& m, VF&) {
    m = hn::MulAdd(c.beta1, m, hn::Mul(c.one_minus_beta1, g));
    return c.nesterov ? hn::MulAdd(c.beta1, m, g) : m;
  }
};

struct LambRule {
  static HWY_INLINE VF direction(const Coefficients& c, VF, VF p, VF& m, VF& v) {
    return lamb_direction(c, p, m, v);
  }
};

HWY_INLINE VF muon_direction(const Coefficients& c, VF g, VF& m) {
  const VF part = hn::Mul(c.one_minus_beta1, g);
  m = hn::MulAdd(c.beta1, m, part);
  return c.nesterov ? hn::MulAdd(c.beta1, m, part) : m;
}

// Replaces p, m and v by their new float32 values; +0 where the element has no update ("idle"),
// else not negative, or a NaN.
template <class Rule>
HWY_INLINE VF step(const Coefficients& c, VF grad, VF& p, VF& m, VF& v) {
  const bool l2 = c.decay == Decay::l2 && !std::is_same_v<Rule, LambRule>;
  const VF direction = Rule::direction(c, gradient(c, grad, p, l2), p, m, v);
  // Both terms are zero if and only if the union of their bits is a zero.
  const VF either = hn::Or(hn::And(direction, c.step_mask), hn::And(p, c.decay_mask));
  if (c.decay == Decay::decoupled) p = hn::MulAdd(p, c.decay_rate, p);
  p = hn::MulAdd(c.minus_step, direction, p);
  return either;
}

// Vanished updates are the unchanged weights without the idle ones. Idle elements are few, or come
// in runs, so they are worth a branch.
class Counter {
 public:
  HWY_INLINE void add(size_t unchanged) { unchanged_ += unchanged; }
  // Of a pair whose unchanged weights were added; `moves` as step() has them.
  HWY_INLINE void leave_out_idle(Pair moves, Pair stored, Pair old) {
    leave_out_idle(moves.lo, stored.lo, old.lo);
    leave_out_idle(moves.hi, stored.hi, old.hi);
  }
  [[nodiscard]] UpdateCount result(int64_t elements) const {
    return {elements - static_cast<int64_t>(idle_), static_cast<int64_t>(unchanged_)};
  }

 private:
  HWY_INLINE void leave_out_idle(VF moves, VF stored, VF old) {
    const DF df;
    const MF idle = hn::Eq(moves, hn::Zero(df));
    idle_ += hn::CountTrue(df, idle);
    unchanged_ -= hn::CountTrue(df, hn::And(idle, unchanged(stored, old)));
  }
  size_t idle_ = 0, unchanged_ = 0;
};

// Whether a pair needs a look: it has idle elements, or a NaN. A NaN in m or v is one in p, too;
// Inf - Inf costs a needless look, nothing more.
HWY_INLINE bool is_special(Pair moves, Pair p) {
  const DU du;
  const VU least = hn::Min(bits_of(moves.lo), bits_of(moves.hi));
  const auto idle = hn::Eq(least, hn::Zero(du));
  const auto nan = hn::RebindMask(du, hn::IsNaN(hn::Add(p.lo, p.hi)));
  return !hn::AllFalse(du, hn::Or(idle, nan));
}

// adam.cpp: Adam in one pass over the arrays, in whole pairs, of which `done` elements were; none
// where it has no form for the update's formats.
UpdateCount fused_adam(const Update& u, int64_t& done);
// adam_blocks.cpp: the same with both moments in 8-bit blocks, in whole leaves.
UpdateCount fused_adam_blocks(const Update& u, int64_t& done);

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target

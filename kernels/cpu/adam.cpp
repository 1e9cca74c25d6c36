// SPDX-License-Identifier: Apache-2.0
// The fused Adam step, vector form of reference/adam.h: one pass that reads gradient, weight and
// moments and writes weight, moments and the published copy.
//
// Two vectors at a time; division and square root are exact. All formats are one template,
// instantiated once per combination; stochastic rounding is a second instantiation that reads a
// leaf's random numbers from a buffer in the first-level cache.
#include "kernels/reference/adam.h"

#include <cstring>

#include "kernels/block_moments.h"
#include "kernels/cpu/targets.h"
#include "kernels/reference/block8.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adam.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/block8-inl.h"
#include "kernels/cpu/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

enum class Decay { none, l2, decoupled };

// AdamScalars as vectors.
struct Coefficients {
  explicit HWY_INLINE Coefficients(const AdamScalars& s)
      : gradient_factor(set(s.gradient_factor)),
        beta1(set(s.beta1)),
        one_minus_beta1(set(s.one_minus_beta1)),
        beta2(set(s.beta2)),
        one_minus_beta2(set(s.one_minus_beta2)),
        eps(set(s.eps)),
        inverse_sqrt_bias2(set(s.inverse_sqrt_bias2)),
        minus_step(set(s.minus_step)) {
    const float rate = s.decoupled ? s.minus_lr_decay : s.weight_decay;
    decay = rate == 0 ? Decay::none : s.decoupled ? Decay::decoupled : Decay::l2;
    decay_rate = set(rate);
    step_mask = mask(s.minus_step != 0);
    decay_mask = mask(decay == Decay::decoupled);
  }

  VF gradient_factor, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, inverse_sqrt_bias2;
  VF minus_step, decay_rate;
  VF step_mask, decay_mask;  // all ones where a step, a decoupled decay applies
  Decay decay;

 private:
  static HWY_INLINE VF set(float x) { return hn::Set(DF{}, x); }
  static HWY_INLINE VF mask(bool on) {
    return hn::BitCast(DF{}, hn::Set(DU{}, on ? 0xffffffffU : 0U));
  }
};

// Replaces p, m and v by their new float32 values; true where the element has no update ("idle").
HWY_INLINE MF step(const Coefficients& c, VF grad, VF& p, VF& m, VF& v) {
  VF g = hn::Mul(grad, c.gradient_factor);
  if (c.decay == Decay::l2) g = hn::MulAdd(c.decay_rate, p, g);
  m = hn::MulAdd(c.beta1, m, hn::Mul(c.one_minus_beta1, g));
  v = hn::MulAdd(c.beta2, v, hn::Mul(hn::Mul(c.one_minus_beta2, g), g));
  const VF denominator = hn::MulAdd(hn::Sqrt(v), c.inverse_sqrt_bias2, c.eps);
  const VF quotient = hn::Div(m, denominator);
  // Both terms are zero if and only if the union of their bits is a zero.
  const VF either = hn::Or(hn::And(quotient, c.step_mask), hn::And(p, c.decay_mask));
  if (c.decay == Decay::decoupled) p = hn::MulAdd(p, c.decay_rate, p);
  p = hn::MulAdd(c.minus_step, quotient, p);
  return hn::Eq(either, hn::Zero(DF{}));
}

// Stores a state; returns the values as stored. `random` is null for nearest even.
template <class State, bool kStochastic>
HWY_INLINE Pair store_state(Pair x, typename State::Storage* to,
                            [[maybe_unused]] const uint16_t* random) {
  if constexpr (std::is_same_v<State, Float32>) {
    Float32::store(x, to);
    return x;
  } else if constexpr (std::is_same_v<State, Float16>) {
    Float16::store(x, to);
    return Float16::rounded(x);
  } else {
    BitsPair bits = {bits_of(x.lo), bits_of(x.hi)};
    if (kStochastic && random != nullptr) {
      const BitsPair r = State::load_words(random);
      bits = {hn::Add(bits.lo, r.lo), hn::Add(bits.hi, r.hi)};
    } else {
      bits = {nearest_bfloat16(x.lo), nearest_bfloat16(x.hi)};
    }
    State::store_bits(bits, to);
    return {BFloat16::upper_half(bits.lo), BFloat16::upper_half(bits.hi)};
  }
}

// A leaf's random numbers of the states that are stored stochastically.
class LeafRandom {
 public:
  explicit HWY_INLINE LeafRandom(const Adam& a) : stream_(a.random) {
    if (a.remainder == nullptr) choose(weight, weight_buffer_, a.weight_format, a.weight_rounding);
    choose(exp_avg, exp_avg_buffer_, a.exp_avg_format, a.exp_avg_rounding);
    choose(exp_avg_sq, exp_avg_sq_buffer_, a.exp_avg_sq_format, a.exp_avg_sq_rounding);
  }
  LeafRandom(const LeafRandom&) = delete;
  LeafRandom& operator=(const LeafRandom&) = delete;

  HWY_INLINE void fill(int64_t leaf) {
    const uint64_t element = stream_.first_element + static_cast<uint64_t>(leaf);
    if (weight != nullptr) random_leaf(stream_.weight_key, element, stream_.step, weight_buffer_);
    if (exp_avg != nullptr)
      random_leaf(stream_.exp_avg_key, element, stream_.step, exp_avg_buffer_);
    if (exp_avg_sq != nullptr) {
      random_leaf(stream_.exp_avg_sq_key, element, stream_.step, exp_avg_sq_buffer_);
    }
  }

  // The buffers, or null for nearest even.
  const uint16_t *weight = nullptr, *exp_avg = nullptr, *exp_avg_sq = nullptr;

 private:
  static void choose(const uint16_t*& chosen, const uint16_t* buffer, Format format,
                     Rounding rounding) {
    if (format == Format::bfloat16 && rounding == Rounding::stochastic) chosen = buffer;
  }

  const RandomStream& stream_;
  alignas(64) uint16_t weight_buffer_[kLeaf], exp_avg_buffer_[kLeaf], exp_avg_sq_buffer_[kLeaf];
};

struct NoRandom {
  explicit NoRandom(const Adam&) {}
  void fill(int64_t) {}
  static constexpr const uint16_t *weight = nullptr, *exp_avg = nullptr, *exp_avg_sq = nullptr;
};

// Vanished updates are the unchanged weights without the idle ones. Idle elements are few, or come
// in runs, so they are worth a branch.
class Counter {
 public:
  HWY_INLINE void add(MF idle_lo, MF idle_hi, Pair stored, Pair old) {
    const DF df;
    const MF same_lo = hn::Eq(stored.lo, old.lo), same_hi = hn::Eq(stored.hi, old.hi);
    unchanged_ += hn::CountTrue(df, same_lo) + hn::CountTrue(df, same_hi);
    if (HWY_UNLIKELY(!hn::AllFalse(df, hn::Or(idle_lo, idle_hi)))) {
      idle_ += hn::CountTrue(df, idle_lo) + hn::CountTrue(df, idle_hi);
      unchanged_ -= hn::CountTrue(df, hn::And(idle_lo, same_lo));
      unchanged_ -= hn::CountTrue(df, hn::And(idle_hi, same_hi));
    }
  }
  [[nodiscard]] UpdateCount result(int64_t elements) const {
    return {elements - static_cast<int64_t>(idle_), static_cast<int64_t>(unchanged_)};
  }

 private:
  size_t idle_ = 0, unchanged_ = 0;
};

HWY_INLINE const uint16_t* at(const uint16_t* buffer, int64_t i) {
  return buffer == nullptr ? nullptr : buffer + i;
}

// Steps whole pairs; the number of elements done is left in `done`.
template <class Weight, class ExpAvg, class ExpAvgSq, class Grad, bool kStochastic>
HWY_NOINLINE UpdateCount adam_pairs(const Adam& a, int64_t& done) {
  const DF df;
  const Coefficients c(a.scalars);
  auto* weight = static_cast<typename Weight::Storage*>(a.weight);
  auto* exp_avg = static_cast<typename ExpAvg::Storage*>(a.exp_avg);
  auto* exp_avg_sq = static_cast<typename ExpAvgSq::Storage*>(a.exp_avg_sq);
  const auto* grad = static_cast<const typename Grad::Storage*>(a.grad);
  [[maybe_unused]] auto* published = static_cast<uint16_t*>(a.published);
  [[maybe_unused]] const bool half = a.published_format == Format::float16;
  std::conditional_t<kStochastic, LeafRandom, NoRandom> random(a);

  const int64_t end = a.count - a.count % kPair;
  Counter count;
  for (int64_t leaf = 0; leaf < end; leaf += kLeaf) {
    random.fill(leaf);
    const int64_t leaf_end = HWY_MIN(leaf + kLeaf, end);
    for (int64_t i = leaf; i < leaf_end; i += kPair) {
      prefetch_ahead(grad + i);
      prefetch_ahead(weight + i);
      prefetch_ahead(exp_avg + i);
      prefetch_ahead(exp_avg_sq + i);
      const Pair g = Grad::load(grad + i);
      Pair old;
      if constexpr (kIsSplit<Weight>) {
        prefetch_ahead(a.remainder + i);
        old = Weight::load(weight + i, a.remainder + i);
      } else {
        old = Weight::load(weight + i);
      }
      Pair p = old, m = ExpAvg::load(exp_avg + i), v = ExpAvgSq::load(exp_avg_sq + i);
      const MF idle_lo = step(c, g.lo, p.lo, m.lo, v.lo), idle_hi = step(c, g.hi, p.hi, m.hi, v.hi);

      // A NaN in m or v is one in p, too. Inf - Inf costs a needless look, nothing more.
      if (HWY_UNLIKELY(!hn::AllFalse(df, hn::IsNaN(hn::Add(p.lo, p.hi))))) {
        p = {canonical(p.lo), canonical(p.hi)};
        m = {canonical(m.lo), canonical(m.hi)};
        v = {canonical(v.lo), canonical(v.hi)};
      }

      const int64_t r = i - leaf;
      store_state<ExpAvg, kStochastic>(m, exp_avg + i, at(random.exp_avg, r));
      store_state<ExpAvgSq, kStochastic>(v, exp_avg_sq + i, at(random.exp_avg_sq, r));
      Pair stored = p;
      if constexpr (kIsSplit<Weight>) {
        Weight::store(p, weight + i, a.remainder + i);
      } else {
        stored = store_state<Weight, kStochastic>(p, weight + i, at(random.weight, r));
      }
      if constexpr (std::is_same_v<Weight, Float32>) {
        if (published != nullptr) {
          if (half) {
            Float16::store(p, published + i);
          } else {
            BFloat16::store(p, published + i);
          }
        }
      }

      count.add(idle_lo, idle_hi, stored, old);
    }
  }
  done = end;
  return count.result(end);
}

// Calls f with the trait of a moment's format.
template <class Function>
HWY_INLINE UpdateCount with_moment(Format format, const Function& f) {
  if (format == Format::bfloat16) return f(BFloat16{});
  return f(Float32{});
}

// Of a weight's or gradient's.
template <class Function>
HWY_INLINE UpdateCount with_value(Format format, const Function& f) {
  if (format == Format::float16) return f(Float16{});
  return with_moment(format, f);
}

template <class Function>
HWY_INLINE UpdateCount with_weight(const Adam& a, const Function& f) {
  return a.remainder != nullptr ? f(Split{}) : with_value(a.weight_format, f);
}

template <bool kStochastic>
HWY_INLINE UpdateCount adam_formats(const Adam& a, int64_t& done) {
  return with_weight(a, [&](auto w) HWY_ATTR {
    return with_moment(a.exp_avg_format, [&](auto m) HWY_ATTR {
      return with_moment(a.exp_avg_sq_format, [&](auto v) HWY_ATTR {
        return with_value(a.grad_format, [&](auto g) HWY_ATTR {
          using W = decltype(w);
          using M = decltype(m);
          using V = decltype(v);
          using G = decltype(g);
          constexpr bool kAnyState = std::is_same_v<W, BFloat16> || std::is_same_v<M, BFloat16> ||
                                     std::is_same_v<V, BFloat16>;
          constexpr bool kHalves = std::is_same_v<M, BFloat16> && std::is_same_v<V, BFloat16> &&
                                   std::is_same_v<G, BFloat16>;
          // A bfloat16 beside a float16: nobody trains so, and the oracle can do it.
          constexpr bool kBfloat16 = std::is_same_v<W, BFloat16> || kIsSplit<W>;
          constexpr bool kMixed = (kBfloat16 && std::is_same_v<G, Float16>) ||
                                  (std::is_same_v<W, Float16> && std::is_same_v<G, BFloat16>);
          if constexpr (kMixed) {
            return UpdateCount{};
          } else if constexpr (kHalves && kBfloat16) {
            using E = BFloat16EvenOdd;
            using Weight = std::conditional_t<kIsSplit<W>, SplitEvenOdd, E>;
            return adam_pairs<Weight, E, E, E, kStochastic>(a, done);
          } else {
            constexpr bool kRandom = kStochastic && kAnyState;
            return adam_pairs<W, M, V, G, kRandom>(a, done);
          }
        });
      });
    });
  });
}

// Both forms of what is instantiated.
HWY_NOINLINE UpdateCount adam_by_pairs(const Adam& a, bool stochastic, int64_t& done) {
  return stochastic ? adam_formats<true>(a, done) : adam_formats<false>(a, done);
}

// The last elements, fewer than a pair, in a pair of their own whose other elements have no update:
// their second moment is 1, so that no eps makes a NaN of them.
UpdateCount adam_tail(const Adam& a, bool stochastic, int64_t& done) {
  constexpr size_t kBytes = kPair * sizeof(float);
  alignas(64) std::byte grad[kBytes] = {}, weight[kBytes] = {}, remainder[kBytes] = {};
  alignas(64) std::byte exp_avg[kBytes] = {}, exp_avg_sq[kBytes], published[kBytes];
  const auto bytes = [&](Format format) { return static_cast<size_t>(bytes_of(a.count, format)); };
  for (int64_t i = 0; i < kPair; ++i) {
    constexpr float kOne = 1;
    constexpr uint16_t kHalfOne = 0x3f80;
    const bool wide = a.exp_avg_sq_format == Format::float32;
    const size_t width = wide ? sizeof kOne : sizeof kHalfOne;
    std::memcpy(exp_avg_sq + static_cast<size_t>(i) * width,
                wide ? static_cast<const void*>(&kOne) : &kHalfOne, width);
  }
  Adam pair = a;
  pair.count = kPair;
  pair.grad = std::memcpy(grad, a.grad, bytes(a.grad_format));
  pair.weight = std::memcpy(weight, a.weight, bytes(a.weight_format));
  pair.exp_avg = std::memcpy(exp_avg, a.exp_avg, bytes(a.exp_avg_format));
  pair.exp_avg_sq = std::memcpy(exp_avg_sq, a.exp_avg_sq, bytes(a.exp_avg_sq_format));
  if (a.published != nullptr) {  // not every weight has it written
    pair.published = std::memcpy(published, a.published, bytes(a.published_format));
  }
  if (a.remainder != nullptr) {
    pair.remainder = reinterpret_cast<uint16_t*>(remainder);
    std::memcpy(remainder, a.remainder, bytes(Format::split));
  }
  const UpdateCount count = adam_by_pairs(pair, stochastic, done);
  if (done == 0) return count;
  std::memcpy(a.weight, weight, bytes(a.weight_format));
  std::memcpy(a.exp_avg, exp_avg, bytes(a.exp_avg_format));
  std::memcpy(a.exp_avg_sq, exp_avg_sq, bytes(a.exp_avg_sq_format));
  if (a.published != nullptr) std::memcpy(a.published, published, bytes(a.published_format));
  if (a.remainder != nullptr) std::memcpy(a.remainder, remainder, bytes(Format::split));
  done = a.count;
  return count;
}

UpdateCount adam(const Adam& a) {
  if (has_blocks(a)) return update_by_blocks(a, adam, unpack_blocks, pack_blocks);
  const auto stochastic = [](Format format, Rounding rounding) {
    return format == Format::bfloat16 && rounding == Rounding::stochastic;
  };
  const bool any_stochastic =
      (a.remainder == nullptr && stochastic(a.weight_format, a.weight_rounding)) ||
      stochastic(a.exp_avg_format, a.exp_avg_rounding) ||
      stochastic(a.exp_avg_sq_format, a.exp_avg_sq_rounding);
  UpdateCount count;
  int64_t done = 0;
  if (a.count >= kPair) kernels::add(count, adam_by_pairs(a, any_stochastic, done));
  if (const int64_t left = a.count - done; left > 0 && left < kPair) {
    int64_t stepped = 0;
    kernels::add(count, adam_tail(part_of(a, done, left), any_stochastic, stepped));
    done += stepped;
  }
  if (done < a.count) kernels::add(count, reference::adam(part_of(a, done, a.count - done)));
  return count;
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace outrigger::kernels::cpu {
OTR_EXPORT(AdamFunction, adam_for, adam)
}  // namespace outrigger::kernels::cpu
#endif

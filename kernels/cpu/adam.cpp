// SPDX-License-Identifier: Apache-2.0
// The fused Adam step, vector form of reference/update.h: one pass that reads gradient, weight and
// moments and writes weight, moments and the published copy.
//
// Two vectors at a time; division and square root are exact. All formats are one template,
// instantiated once per combination that training uses; stochastic rounding is a second
// instantiation that draws numbers on the way. Other formats, other rules and the last elements are
// update.cpp's.
#include "kernels/cpu/targets.h"
#include "kernels/reference/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adam.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/random-inl.h"
#include "kernels/cpu/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

// Steps whole pairs; the number of elements done is left in `done`.
template <class Weight, class ExpAvg, class ExpAvgSq, class Grad, bool kStochastic>
HWY_NOINLINE UpdateCount adam_pairs(const Update& a, int64_t& done) {
  const Coefficients c(a.scalars);
  const Weights<Weight> weights(a);
  auto* exp_avg = static_cast<typename ExpAvg::Storage*>(a.exp_avg);
  auto* exp_avg_sq = static_cast<typename ExpAvgSq::Storage*>(a.exp_avg_sq);
  const auto* grad = static_cast<const typename Grad::Storage*>(a.grad);
  const RandomStates random(a);
  [[maybe_unused]] alignas(64) uint16_t numbers[reference::kNumbers];
  [[maybe_unused]] LeafPhilox philox(a.random.key, a.random.step);
  // Draws lie as the values do, evens and odds apart or in order.
  using Layout = std::conditional_t<std::is_same_v<Grad, BFloat16EvenOdd>, Grad, BFloat16>;
  [[maybe_unused]] LeafWords<Layout> words;
  const auto prefetch = [&](int64_t i) HWY_ATTR {
    prefetch_ahead(grad + i);
    weights.prefetch(i);
    prefetch_ahead(exp_avg + i);
    prefetch_ahead(exp_avg_sq + i);
  };

  const int64_t end = a.count - a.count % kPair;
  Counter count;
  for (int64_t leaf = 0; leaf < end; leaf += kLeaf) {
    const int64_t leaf_end = HWY_MIN(leaf + kLeaf, end);
    if constexpr (kStochastic) {
      philox.draw(a.random.first_element + static_cast<uint64_t>(leaf), numbers);
      words.take(numbers);
    }
    for (int64_t i = leaf; i < leaf_end; i += kPair) {
      prefetch(i);
      const Pair g = Grad::load(grad + i);
      const Pair old = weights.load(i);
      Pair p = old, m = ExpAvg::load(exp_avg + i), v = ExpAvgSq::load(exp_avg_sq + i);
      const Pair moves(step<AdamRule>(c, g.lo, p.lo, m.lo, v.lo),
                       step<AdamRule>(c, g.hi, p.hi, m.hi, v.hi));
      const bool special = is_special(moves, p);
      if (HWY_UNLIKELY(special)) {
        p = {canonical(p.lo), canonical(p.hi)};
        m = {canonical(m.lo), canonical(m.hi)};
        v = {canonical(v.lo), canonical(v.hi)};
      }

      const auto numbers_of_pair = words.at(i - leaf);
      const auto drawn = [&](Draw draw) HWY_ATTR {
        BitsPair r = {hn::Zero(DU{}), hn::Zero(DU{})};
        if constexpr (kStochastic) r = numbers_of_pair.drawn(draw);
        return r;
      };
      const auto store = [&](auto state, Draw draw, Pair x, auto* to) HWY_ATTR {
        store_state<decltype(state), kStochastic>(x, to, random[draw], drawn(draw));
      };
      store(ExpAvg{}, Draw::exp_avg, m, exp_avg + i);
      store(ExpAvgSq{}, Draw::exp_avg_sq, v, exp_avg_sq + i);
      count.add(weights.template store<kStochastic>(p, old, i, random[Draw::weight],
                                                    drawn(Draw::weight)));
      if (HWY_UNLIKELY(special)) count.leave_out_idle(moves, weights.load(i), old);
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
HWY_INLINE UpdateCount with_weight(const Update& a, const Function& f) {
  return a.remainder != nullptr ? f(Split{}) : with_value(a.weight_format, f);
}

template <bool kStochastic>
HWY_INLINE UpdateCount adam_formats(const Update& a, int64_t& done) {
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
          // A bfloat16 beside a float16: nobody trains so.
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

UpdateCount fused_adam(const Update& u, int64_t& done) {
  done = 0;
  const bool stochastic = RandomStates(u).any();
  return stochastic ? adam_formats<true>(u, done) : adam_formats<false>(u, done);
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

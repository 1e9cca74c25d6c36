// SPDX-License-Identifier: Apache-2.0
// Adam with both moments in 8-bit blocks, a leaf in two loops: the first decodes, steps, stores the
// weights and keeps the new moments in the first-level cache with their largest magnitudes, which
// the second needs before it can encode. Other formats and the last elements are update.cpp's.
#include <cstring>

#include "kernels/cpu/targets.h"
#include "kernels/reference/block8.h"
#include "kernels/reference/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adam_blocks.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/block8-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/cpu/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

// A moment of one leaf on its way into a block.
template <bool kPositive>
class Encoding {
 public:
  HWY_INLINE Encoding() : most_(hn::Zero(DI{})) {}
  HWY_INLINE void add(Pair x, int64_t i) {
    Float32::store(x, values_ + i);
    most_ = hn::Max(most_, hn::Max(magnitude_bits(x.lo), magnitude_bits(x.hi)));
  }
  HWY_INLINE void finish(uint8_t* codes, float* scale, Draw draw, bool random,
                         const uint16_t* numbers) {
    alignas(64) uint16_t drawn[kLeaf];
    if (random) draw_leaf(draw, numbers, drawn);
    *scale = pack_scaled<kPositive>(codes, values_, most_, random ? drawn : nullptr);
  }

 private:
  VI most_;
  alignas(64) float values_[kLeaf];
};

template <class Weight, class Grad>
HWY_NOINLINE UpdateCount adam_leaves(const Update& a, int64_t& done) {
  const Coefficients c(a.scalars);
  const Weights<Weight> weights(a);
  const auto* grad = static_cast<const typename Grad::Storage*>(a.grad);
  auto* exp_avg = static_cast<uint8_t*>(a.exp_avg);
  auto* exp_avg_sq = static_cast<uint8_t*>(a.exp_avg_sq);
  float *exp_avg_scale = a.exp_avg_scales, *exp_avg_sq_scale = a.exp_avg_sq_scales;
  const RandomStates random(a);
  alignas(64) uint16_t numbers[reference::kNumbers];

  const int64_t end = a.count - a.count % kLeaf;
  Counter count;
  for (int64_t leaf = 0; leaf < end; leaf += kLeaf) {
    if (random.any()) {
      random_numbers(a.random.key, a.random.first_element + static_cast<uint64_t>(leaf),
                     a.random.step, numbers);
    }
    const Decoder8<false> old_m(*exp_avg_scale);
    const Decoder8<true> old_v(*exp_avg_sq_scale);
    Encoding<false> new_m;
    Encoding<true> new_v;
    for (int64_t i = 0; i < kLeaf; i += kPair) {
      const int64_t at = leaf + i;
      prefetch_ahead(grad + at);
      weights.prefetch(at);
      const Pair g = Grad::load(grad + at);
      const Pair old = weights.load(at);
      Pair p = old;
      Pair m = old_m.load_pair(exp_avg + i);
      Pair v = old_v.load_pair(exp_avg_sq + i);
      const Pair moves(step<AdamRule>(c, g.lo, p.lo, m.lo, v.lo),
                       step<AdamRule>(c, g.hi, p.hi, m.hi, v.hi));
      const bool special = is_special(moves, p);
      // A NaN in m or v makes its block one.
      if (HWY_UNLIKELY(special)) p = {canonical(p.lo), canonical(p.hi)};
      new_m.add(m, i);
      new_v.add(v, i);

      BitsPair r = {hn::Zero(DU{}), hn::Zero(DU{})};
      if (random[Draw::weight]) r = BFloat16::words(drawn(Draw::weight, numbers, i));
      count.add(weights.template store<true>(p, old, at, random[Draw::weight], r));
      if (HWY_UNLIKELY(special)) count.leave_out_idle(moves, weights.load(at), old);
    }
    new_m.finish(exp_avg, exp_avg_scale++, Draw::exp_avg, random[Draw::exp_avg], numbers);
    new_v.finish(exp_avg_sq, exp_avg_sq_scale++, Draw::exp_avg_sq, random[Draw::exp_avg_sq],
                 numbers);
    exp_avg += kLeaf;
    exp_avg_sq += kLeaf;
  }
  done = end;
  return count.result(end);
}

template <class Weight>
HWY_INLINE UpdateCount with_grad(const Update& a, int64_t& done) {
  if (a.grad_format == Format::bfloat16) return adam_leaves<Weight, BFloat16>(a, done);
  if (a.grad_format == Format::float32) return adam_leaves<Weight, Float32>(a, done);
  return {};
}

UpdateCount fused_adam_blocks(const Update& u, int64_t& done) {
  done = 0;
  if (u.exp_avg_format != Format::block8 || u.exp_avg_sq_format != Format::positive_block8) {
    return {};
  }
  if (u.remainder != nullptr) return with_grad<Split>(u, done);
  if (u.weight_format == Format::float32) return with_grad<Float32>(u, done);
  if (u.weight_format == Format::bfloat16) return with_grad<BFloat16>(u, done);
  return {};
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

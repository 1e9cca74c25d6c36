// SPDX-License-Identifier: Apache-2.0
// Every rule in every format, vector form of reference/update.h: a leaf's values become float32 in
// the first-level cache, are stepped there, and are stored. Adam in the usual formats is
// adam.cpp's and adam_blocks.cpp's.
#include "kernels/reference/update.h"

#include <cstring>

#include "kernels/cpu/targets.h"
#include "kernels/reference/block8.h"
#include "kernels/reference/norm.h"
#include "kernels/update_part.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/update.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/block8-inl.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/cpu/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

// Of one leaf; elements behind the last, up to a whole pair, are zero when loaded.
struct Values {
  alignas(64) float grad[kLeaf], weight[kLeaf], exp_avg[kLeaf], exp_avg_sq[kLeaf];
  alignas(64) float old[kLeaf], moves[kLeaf];
};

// Its random numbers. An update's last elements may begin within a leaf.
struct LeafNumbers {
  explicit HWY_INLINE LeafNumbers(const Update& u) : states(u) {}
  HWY_INLINE void fill(const RandomStream& r) {
    position = static_cast<int64_t>(r.first_element % kLeaf);
    if (states.any()) random_numbers(r.key, r.first_element, r.step, values);
  }
  HWY_INLINE BitsPair drawn(Draw draw, int64_t i) const {
    return BFloat16::words(HWY_NAMESPACE::drawn(draw, values, position + i));
  }
  RandomStates states;
  int64_t position = 0;
  alignas(64) uint16_t values[reference::kNumbers] = {};
};

HWY_INLINE void set_pair(float* to, Pair x) { Float32::store(x, to); }
HWY_INLINE Pair pair_at(const float* from) { return Float32::load(from); }

// The whole pairs of `count` elements, then the rest in a padded pair.
template <class Storage, class Body>
HWY_INLINE void for_pairs(Storage* data, int64_t count, const Body& body) {
  using Element = std::remove_const_t<Storage>;
  int64_t i = 0;
  for (; i + kPair <= count; i += kPair) body(data + i, i);
  if (i == count) return;
  const size_t bytes = static_cast<size_t>(count - i) * sizeof(Element);
  alignas(64) Element padded[kPair] = {};
  std::memcpy(padded, data + i, bytes);
  body(static_cast<Storage*>(padded), i);
  if constexpr (!std::is_const_v<Storage>) std::memcpy(data + i, padded, bytes);
}

HWY_INLINE void load(float* values, const void* stored, const float* scales, Format format,
                     int64_t count) {
  if (stored == nullptr) {
    std::memset(values, 0, sizeof(float) * kLeaf);
    return;
  }
  if (is_block(format)) {
    unpack_blocks(values, stored, scales, format, count);
    for (int64_t i = count; i % kPair != 0; ++i) values[i] = 0;
    return;
  }
  with_format(format, [&](auto f) HWY_ATTR {
    using F = decltype(f);
    for_pairs(static_cast<const typename F::Storage*>(stored), count,
              [&](const typename F::Storage* from, int64_t i)
                  HWY_ATTR { set_pair(values + i, F::load(from)); });
  });
}

// Leaves what was stored in `values`, except of blocks.
HWY_INLINE void store(void* stored, Format format, Draw draw, const LeafNumbers& random,
                      float* values, int64_t count) {
  with_format(format, [&](auto f) HWY_ATTR {
    using F = decltype(f);
    for_pairs(static_cast<typename F::Storage*>(stored), count,
              [&](typename F::Storage* to, int64_t i) HWY_ATTR {
                const Pair x = pair_at(values + i);
                const bool stochastic = random.states[draw];
                set_pair(values + i,
                         store_state<F, true>(x, to, stochastic, random.drawn(draw, i)));
              });
  });
}

// To nearest; `values` stays.
HWY_INLINE void convert_leaf(void* to, Format format, const float* values, int64_t count) {
  with_format(format, [&](auto f) HWY_ATTR {
    using F = decltype(f);
    for_pairs(static_cast<typename F::Storage*>(to), count,
              [&](typename F::Storage* at, int64_t i)
                  HWY_ATTR { F::store(pair_at(values + i), at); });
  });
}

HWY_INLINE void store_moment(void* stored, float* scales, Format format, Rounding rounding,
                             Draw draw, const LeafNumbers& random, const RandomStream& stream,
                             float* values, int64_t count) {
  if (stored == nullptr) return;
  if (!is_block(format)) {
    store(stored, format, draw, random, values, count);
  } else if (count < kLeaf) {
    reference::pack(stored, scales, format, values, count,
                    {rounding, stream.key, stream.first_element, stream.step, draw});
  } else {
    const auto one = format == Format::block8 ? pack_leaf<false> : pack_leaf<true>;
    alignas(64) uint16_t numbers[kLeaf];
    const bool stochastic = rounding == Rounding::stochastic;
    if (stochastic) draw_leaf(draw, random.values, numbers);
    *scales = one(static_cast<uint8_t*>(stored), values, stochastic ? numbers : nullptr);
  }
}

HWY_INLINE void load_weights(float* values, const Update& u) {
  if (u.remainder == nullptr) {
    load(values, u.weight, nullptr, u.weight_format, u.count);
    return;
  }
  for_pairs(static_cast<const uint16_t*>(u.weight), u.count,
            [&](const uint16_t* published, int64_t i) HWY_ATTR {
              for_pairs(static_cast<const uint16_t*>(u.remainder + i), HWY_MIN(kPair, u.count - i),
                        [&](const uint16_t* remainder, int64_t)
                            HWY_ATTR { set_pair(values + i, Split::load(published, remainder)); });
            });
}

// Leaves the weights as stored in `values`.
HWY_INLINE void store_weights(const Update& u, const LeafNumbers& random, float* values) {
  if (u.remainder == nullptr) {
    store(u.weight, u.weight_format, Draw::weight, random, values, u.count);
    return;
  }
  for_pairs(static_cast<uint16_t*>(u.weight), u.count,
            [&](uint16_t* published, int64_t i) HWY_ATTR {
              for_pairs(u.remainder + i, HWY_MIN(kPair, u.count - i),
                        [&](uint16_t* remainder, int64_t)
                            HWY_ATTR { Split::store(pair_at(values + i), published, remainder); });
            });
}

HWY_INLINE void store_moments(const Update& u, const LeafNumbers& random, Values& x) {
  store_moment(u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.exp_avg_rounding, Draw::exp_avg,
               random, u.random, x.exp_avg, u.count);
  store_moment(u.exp_avg_sq, u.exp_avg_sq_scales, u.exp_avg_sq_format, u.exp_avg_sq_rounding,
               Draw::exp_avg_sq, random, u.random, x.exp_avg_sq, u.count);
}

template <class Rule>
HWY_NOINLINE void step_leaf(const Coefficients& c, Values& x, int64_t count) {
  const DF df;
  for (int64_t i = 0; i < count; i += kVector) {
    const VF g = hn::Load(df, x.grad + i), old = hn::Load(df, x.weight + i);
    VF p = old, m = hn::Load(df, x.exp_avg + i), v = hn::Load(df, x.exp_avg_sq + i);
    const VF moves = step<Rule>(c, g, p, m, v);
    hn::Store(old, df, x.old + i);
    hn::Store(moves, df, x.moves + i);
    hn::Store(canonical(p), df, x.weight + i);
    hn::Store(canonical(m), df, x.exp_avg + i);
    hn::Store(canonical(v), df, x.exp_avg_sq + i);
  }
}

using StepLeaf = void (*)(const Coefficients& c, Values& x, int64_t count);

StepLeaf step_of(const Update& u) {
  switch (u.rule) {
    case Rule::adagrad:
      return step_leaf<AdagradRule>;
    case Rule::lion:
      return step_leaf<LionRule>;
    case Rule::sgd:
      return u.exp_avg == nullptr ? step_leaf<SgdRule> : step_leaf<MomentumRule>;
    case Rule::lamb:
      return step_leaf<LambRule>;
    default:
      return step_leaf<AdamRule>;
  }
}

// x.weight: as stored.
HWY_INLINE UpdateCount count_leaf(const Values& x, int64_t count) {
  const DF df;
  size_t moved = 0, vanished = 0;
  for (int64_t i = 0; i < count; i += kVector) {
    const MF here = hn::FirstN(df, static_cast<size_t>(count - i));
    const MF idle = hn::Eq(hn::Load(df, x.moves + i), hn::Zero(df));  // a NaN is not
    const MF moves = hn::AndNot(idle, here);
    const MF same = unchanged(hn::Load(df, x.weight + i), hn::Load(df, x.old + i));
    moved += hn::CountTrue(df, moves);
    vanished += hn::CountTrue(df, hn::And(moves, same));
  }
  return {static_cast<int64_t>(moved), static_cast<int64_t>(vanished)};
}

HWY_INLINE void load_moments(Values& x, const Update& u) {
  load(x.exp_avg, u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.count);
  load(x.exp_avg_sq, u.exp_avg_sq, u.exp_avg_sq_scales, u.exp_avg_sq_format, u.count);
}

HWY_INLINE void load_leaf(Values& x, const Update& u) {
  load(x.grad, u.grad, nullptr, u.grad_format, u.count);
  load_weights(x.weight, u);
  load_moments(x, u);
}

template <class Body>
HWY_INLINE void for_leaves(const Update& u, const Body& body) {
  for (int64_t first = 0; first < u.count; first += kLeaf) {
    body(part_of(u, first, HWY_MIN(kLeaf, u.count - first)));
  }
}

HWY_NOINLINE UpdateCount update_leaves(const Update& whole) {
  const Coefficients c(whole.scalars);
  const StepLeaf step = step_of(whole);
  LeafNumbers random(whole);
  Values x;
  UpdateCount total;
  for_leaves(whole, [&](const Update& u) HWY_ATTR {
    random.fill(u.random);
    load_leaf(x, u);
    step(c, x, u.count);
    if (u.rule != Rule::lamb) store_moments(u, random, x);
    if (u.published != nullptr && u.weight_format == Format::float32) {
      convert_leaf(u.published, u.published_format, x.weight, u.count);
    }
    store_weights(u, random, x.weight);
    add(total, count_leaf(x, u.count));
  });
  return total;
}

UpdateCount update(const Update& u) {
  int64_t done = 0;
  UpdateCount count;
  if (u.rule == Rule::adam) {
    const bool blocks = is_block(u.exp_avg_format) || is_block(u.exp_avg_sq_format);
    kernels::add(count, blocks ? fused_adam_blocks(u, done) : fused_adam(u, done));
  }
  if (done < u.count) kernels::add(count, update_leaves(part_of(u, done, u.count - done)));
  return count;
}

// The squares of a leaf of float32, of which those behind `count` are zero.
HWY_INLINE void add_squares(NormSum& norm, const float* values, int64_t count) {
  LaneSums lanes;
  int pair = 0;
  for (int64_t i = 0; i < count; i += kPair) {
    lanes.add(pair, pair_at(values + i));
    pair = (pair + 1) % kPairsPerRow;
  }
  add_leaf_sum(norm, lanes.sum(), values, Format::float32, 0);
}

HWY_NOINLINE void lamb_leaf(const Coefficients& c, Values& x, int64_t count) {
  const DF df;
  for (int64_t i = 0; i < count; i += kVector) {
    const VF g = gradient(c, hn::Load(df, x.grad + i), hn::Load(df, x.weight + i), false);
    VF m = hn::Load(df, x.exp_avg + i), v = hn::Load(df, x.exp_avg_sq + i);
    adam_moments(c, g, m, v);
    hn::Store(canonical(m), df, x.exp_avg + i);
    hn::Store(canonical(v), df, x.exp_avg_sq + i);
  }
}

void lamb_norms(const Update& whole, NormSum& weights, NormSum& directions) {
  const DF df;
  const Coefficients c(whole.scalars);
  LeafNumbers random(whole);
  Values x;
  for_leaves(whole, [&](const Update& u) HWY_ATTR {
    random.fill(u.random);
    load_leaf(x, u);
    lamb_leaf(c, x, u.count);
    store_moments(u, random, x);
    load_moments(x, u);  // as stored, blocks too
    for (int64_t i = 0; i < u.count; i += kVector) {
      const VF m = hn::Load(df, x.exp_avg + i), v = hn::Load(df, x.exp_avg_sq + i);
      hn::Store(lamb_direction(c, hn::Load(df, x.weight + i), m, v), df, x.moves + i);
    }
    for (int64_t i = u.count; i < kLeaf; ++i) x.weight[i] = x.moves[i] = 0;
    add_squares(weights, x.weight, u.count);
    add_squares(directions, x.moves, u.count);
  });
}

void muon_direction(const Update& whole, float* direction) {
  const DF df;
  const Coefficients c(whole.scalars);
  LeafNumbers random(whole);
  Values x;
  for_leaves(whole, [&](const Update& u) HWY_ATTR {
    random.fill(u.random);
    load(x.grad, u.grad, nullptr, u.grad_format, u.count);
    load(x.exp_avg, u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.count);
    for (int64_t i = 0; i < u.count; i += kVector) {
      const VF g = gradient(c, hn::Load(df, x.grad + i), hn::Zero(df), false);
      VF m = hn::Load(df, x.exp_avg + i);
      hn::Store(canonical(muon_direction(c, g, m)), df, x.moves + i);
      hn::Store(canonical(m), df, x.exp_avg + i);
    }
    store_moments(u, random, x);
    std::memcpy(direction, x.moves, static_cast<size_t>(u.count) * sizeof(float));
    direction += u.count;
  });
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace outrigger::kernels::cpu {
OTR_EXPORT(UpdateFunction, update_for, update)
OTR_EXPORT(LambNormsFunction, lamb_norms_for, lamb_norms)
OTR_EXPORT(MuonDirectionFunction, muon_direction_for, muon_direction)
}  // namespace outrigger::kernels::cpu
#endif

// SPDX-License-Identifier: Apache-2.0
// Every rule of reference/update.h, a leaf to a warp, in every format and rounding of the states.
#pragma once

#include "kernels/cuda/norm.h"
#include "kernels/cuda/states.h"
#include "kernels/reference/update.h"

namespace outrigger::kernels::cuda {

struct CountBlock {
  uint64_t updates = 0, vanished = 0;
};
// What a lane has counted, until its warp is done.
struct LaneCounts {
  uint32_t updates, vanished;
};
using Counts = PerLane<LaneCounts>;
OTR_DEVICE void begin(Counts& counts) {
  each_lane([&](int lane) { counts[lane] = {0, 0}; });
}
OTR_DEVICE void add_counts(CountBlock& to, Counts& counts) {
  PerLane<uint32_t> part;
  each_lane([&](int lane) { part[lane] = counts[lane].updates; });
  const uint64_t updates = sum_of(part);
  each_lane([&](int lane) { part[lane] = counts[lane].vanished; });
  const uint64_t vanished = sum_of(part);
  each_lane([&](int lane) {
    if (lane != 0) return;
    if (updates != 0) add_to(to.updates, updates);
    if (vanished != 0) add_to(to.vanished, vanished);
  });
}

// A leaf's gradients, weights and moments.
struct Leaf {
  PerLane<Lane> grad, weight, exp_avg, exp_avg_sq;
};

// Reads all of a leaf, runs `meanwhile`, and makes numbers of what has come.
template <class Meanwhile>
OTR_DEVICE void load_leaf(Leaf& leaf, const Update& u, const LeafOf& of,
                          const Meanwhile& meanwhile) {
  PerLane<Raw> grad, weight, lower;
  RawState exp_avg, exp_avg_sq;
  each_lane([&](int lane) { read(grad[lane], u.grad, u.grad_format, of, lane); });
  read_weights(weight, lower, u, of);
  read_moment(exp_avg, u.exp_avg, u.exp_avg_scales, u.exp_avg_format, of);
  read_moment(exp_avg_sq, u.exp_avg_sq, u.exp_avg_sq_scales, u.exp_avg_sq_format, of);
  meanwhile();
  each_lane([&](int lane) { widen(leaf.grad[lane], grad[lane], u.grad_format); });
  widen_weights(leaf.weight, weight, lower, u);
  widen_moment(leaf.exp_avg, exp_avg, u.exp_avg_format, of);
  widen_moment(leaf.exp_avg_sq, exp_avg_sq, u.exp_avg_sq_format, of);
}

OTR_DEVICE void store_moments(Leaf& leaf, const Update& u, const LeafOf& of,
                              const Scratch& scratch) {
  store_moment(leaf.exp_avg, u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.exp_avg_rounding,
               Draw::exp_avg, of, scratch);
  store_moment(leaf.exp_avg_sq, u.exp_avg_sq, u.exp_avg_sq_scales, u.exp_avg_sq_format,
               u.exp_avg_sq_rounding, Draw::exp_avg_sq, of, scratch);
}

// Where any state of the update needs them.
OTR_DEVICE void draw_for(const Update& u, const LeafOf& of, Scratch& scratch) {
  const bool weight = u.remainder == nullptr && is_random(u.weight_format, u.weight_rounding);
  if (weight || is_random(u.exp_avg_format, u.exp_avg_rounding) ||
      is_random(u.exp_avg_sq_format, u.exp_avg_sq_rounding)) {
    sync();  // the leaf before has read its own
    draw(u.random, of, scratch);
  }
}

// The rule of the whole leaf; updated: a bit for each of a lane's elements.
template <Rule kRule>
OTR_DEVICE void step_leaf(Leaf& leaf, PerLane<uint32_t>& updated, const UpdateScalars& scalars,
                          bool has_momentum, const LeafOf& of) {
  each_lane([&](int lane) {
    updated[lane] = 0;
    float all = 0;  // a NaN if one of them is, and else perhaps
    for (int i = 0; i < kPerLane; ++i) {
      const reference::Stepped e = reference::stepped_anyhow(
          kRule, scalars, has_momentum, leaf.grad[lane][i], leaf.weight[lane][i],
          leaf.exp_avg[lane][i], leaf.exp_avg_sq[lane][i]);
      leaf.grad[lane][i] = leaf.weight[lane][i];  // what it was, from here on
      leaf.weight[lane][i] = e.weight;
      leaf.exp_avg[lane][i] = e.exp_avg;
      leaf.exp_avg_sq[lane][i] = e.exp_avg_sq;
      all += e.weight + (e.exp_avg + e.exp_avg_sq);
      updated[lane] |= static_cast<uint32_t>(e.update) << i;
    }
    updated[lane] &= of.mask(lane);
    if (!reference::is_nan(all)) return;
    for (int i = 0; i < kPerLane; ++i) {
      leaf.weight[lane][i] = reference::canonical(leaf.weight[lane][i]);
      leaf.exp_avg[lane][i] = reference::canonical(leaf.exp_avg[lane][i]);
      leaf.exp_avg_sq[lane][i] = reference::canonical(leaf.exp_avg_sq[lane][i]);
    }
  });
}

OTR_DEVICE void step_leaf(Rule rule, Leaf& leaf, PerLane<uint32_t>& updated,
                          const UpdateScalars& scalars, bool has_momentum, const LeafOf& of) {
  switch (rule) {
    case Rule::adam:
      return step_leaf<Rule::adam>(leaf, updated, scalars, has_momentum, of);
    case Rule::adagrad:
      return step_leaf<Rule::adagrad>(leaf, updated, scalars, has_momentum, of);
    case Rule::lion:
      return step_leaf<Rule::lion>(leaf, updated, scalars, has_momentum, of);
    case Rule::sgd:
      return step_leaf<Rule::sgd>(leaf, updated, scalars, has_momentum, of);
    case Rule::lamb:
      return step_leaf<Rule::lamb>(leaf, updated, scalars, has_momentum, of);
    case Rule::muon:  // has no update of its own
      return step_leaf<Rule::muon>(leaf, updated, scalars, has_momentum, of);
  }
}

// Adam of a whole leaf without a branch, by roots and quotients that are right as long as none is
// near an end of float32's range. False: one is, or there is a NaN, in some lane; then the leaf is
// to be loaded again.
OTR_DEVICE bool quick_adam(Leaf& leaf, PerLane<uint32_t>& updated, const UpdateScalars& scalars) {
  const bool scalars_fit = scalars.minus_step != 0 && scalars.eps >= 0x1p-60F &&
                           scalars.eps <= 0x1p40F && scalars.inverse_sqrt_bias2 >= 0 &&
                           scalars.inverse_sqrt_bias2 <= 0x1p20F;
  // Unsigned distances from the least bits that fit: what is below, or a NaN, is far, too. A NaN of
  // a moment is one of the quotient or of v; q's sign is shifted out.
  constexpr uint32_t kLeastV = 27U << 23, kMostV = (227U << 23) - kLeastV;
  constexpr uint32_t kLeastQ = 87U << 24, kMostQ = (187U << 24) - kLeastQ;
  PerLane<bool> fits;
  each_lane([&](int lane) {
    updated[lane] = 0xff;  // no quotient is 0
    uint32_t most_v = 0, most_q = 0;
    float sum = 0;
    for (int i = 0; i < kPerLane; ++i) {
      const float p = leaf.weight[lane][i];
      float &m = leaf.exp_avg[lane][i], &v = leaf.exp_avg_sq[lane][i];
      const float g = reference::gradient_of(Rule::adam, scalars, leaf.grad[lane][i], p);
      reference::adam_moments(scalars, g, m, v);
      const float q =
          quick_quotient(m, std::fma(quick_root(v), scalars.inverse_sqrt_bias2, scalars.eps));
      const uint32_t far_v = reference::bits_of(v) - kLeastV;
      const uint32_t far_q = reference::bits_of(q) * 2 - kLeastQ;
      most_v = far_v > most_v ? far_v : most_v;
      most_q = far_q > most_q ? far_q : most_q;
      const reference::Stepped e = reference::applied(scalars, q, p, m, v);
      leaf.grad[lane][i] = p;
      leaf.weight[lane][i] = e.weight;
      sum += e.weight;
    }
    fits[lane] = scalars_fit && most_v <= kMostV && most_q <= kMostQ && !reference::is_nan(sum);
  });
  return all(fits);
}

// scalars: in place of the update's own.
OTR_DEVICE void update_leaf(const Update& u, const UpdateScalars& scalars, const LeafOf& of,
                            Scratch& scratch, Counts& counts) {
  Leaf leaf;
  PerLane<uint32_t> updated;
  load_leaf(leaf, u, of, [&] { draw_for(u, of, scratch); });
  const bool quick = of.plain && u.rule == Rule::adam;
  if (!quick || !quick_adam(leaf, updated, scalars)) {
    if (quick) load_leaf(leaf, u, of, [] {});
    step_leaf(u.rule, leaf, updated, scalars, u.exp_avg != nullptr, of);
  }
  if (u.rule != Rule::lamb) store_moments(leaf, u, of, scratch);
  each_lane([&](int lane) {
    store_weights(leaf.weight[lane], u, of, scratch, lane);
    const auto stayed = [&](int i) {
      return reference::bits_of(leaf.weight[lane][i]) == reference::bits_of(leaf.grad[lane][i]);
    };
    counts[lane].updates += ones_in(updated[lane]);
    if (updated[lane] == 0xff) {
      for (int i = 0; i < kPerLane; ++i) counts[lane].vanished += stayed(i) ? 1U : 0U;
    } else {
      for (int i = 0; i < kPerLane; ++i) {
        counts[lane].vanished += (updated[lane] >> i & 1) != 0 && stayed(i) ? 1U : 0U;
      }
    }
    if (u.published != nullptr && u.weight_format == Format::float32) {  // stored as it was
      store_nearest(u.published, u.published_format, of, lane, leaf.weight[lane]);
    }
  });
}

OTR_DEVICE void update_leaf(const Update& u, int64_t first, Scratch& scratch, Counts& counts) {
  update_leaf(u, u.scalars, LeafOf(u.count, first), scratch, counts);
}

// What a leaf's lanes have, to the scratch and into the sum.
template <class Value>
OTR_DEVICE void add_squares_of(WarpNorm& norm, const LeafOf& of, Scratch& scratch,
                               const Value& value) {
  sync();
  each_lane([&](int lane) {
    for (int i = 0; i < kPerLane; ++i) scratch.values[LeafOf::at(lane, i)] = value(lane, i);
  });
  sync();
  add_squares<false>(
      norm, of.count, [&](int lane, int k) { return scratch.values[lane + k * kLanes]; },
      [&](int, int i) { lower_to(norm.to->first, first_of(i, -1)); });
}

OTR_DEVICE void lamb_norms_leaf(const Update& u, int64_t first, Scratch& scratch, WarpNorm& weights,
                                WarpNorm& directions) {
  const LeafOf of(u.count, first);
  Leaf leaf;
  load_leaf(leaf, u, of, [&] { draw_for(u, of, scratch); });
  each_lane([&](int lane) {
    for (int i = 0; i < kPerLane; ++i) {
      const float g =
          reference::gradient_of(u.rule, u.scalars, leaf.grad[lane][i], leaf.weight[lane][i]);
      float &m = leaf.exp_avg[lane][i], &v = leaf.exp_avg_sq[lane][i];
      reference::adam_moments(u.scalars, g, m, v);
      m = reference::canonical(m);
      v = reference::canonical(v);
    }
  });
  store_moments(leaf, u, of, scratch);
  sync();
  RawState exp_avg, exp_avg_sq;  // as stored
  read_moment(exp_avg, u.exp_avg, u.exp_avg_scales, u.exp_avg_format, of);
  read_moment(exp_avg_sq, u.exp_avg_sq, u.exp_avg_sq_scales, u.exp_avg_sq_format, of);
  widen_moment(leaf.exp_avg, exp_avg, u.exp_avg_format, of);
  widen_moment(leaf.exp_avg_sq, exp_avg_sq, u.exp_avg_sq_format, of);
  add_squares_of(weights, of, scratch, [&](int lane, int i) { return leaf.weight[lane][i]; });
  add_squares_of(directions, of, scratch, [&](int lane, int i) {
    return reference::lamb_direction(u.scalars, leaf.weight[lane][i], leaf.exp_avg[lane][i],
                                     leaf.exp_avg_sq[lane][i]);
  });
}

OTR_DEVICE void muon_direction_leaf(const Update& u, int64_t first, Scratch& scratch,
                                    float* direction) {
  const LeafOf of(u.count, first);
  Leaf leaf;
  load_leaf(leaf, u, of, [&] { draw_for(u, of, scratch); });
  each_lane([&](int lane) {
    Lane out;
    for (int i = 0; i < kPerLane; ++i) {
      float& m = leaf.exp_avg[lane][i];
      const float g = reference::gradient_of(u.rule, u.scalars, leaf.grad[lane][i], 0);
      out[i] = reference::canonical(reference::muon_direction(u.scalars, g, m));
      m = reference::canonical(m);
    }
    store_nearest<Float32>(direction, of, lane, out);
  });
  store_moment(leaf.exp_avg, u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.exp_avg_rounding,
               Draw::exp_avg, of, scratch);
}

}  // namespace outrigger::kernels::cuda

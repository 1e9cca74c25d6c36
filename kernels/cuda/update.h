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

// A leaf's gradients, weights and moments.
struct Leaf {
  PerLane<Lane> grad, weight, exp_avg, exp_avg_sq;
};

OTR_DEVICE void load_moments(Leaf& leaf, const Update& u, const LeafOf& of) {
  each_lane([&](int lane) {
    load_moment(leaf.exp_avg[lane], u.exp_avg, u.exp_avg_scales, u.exp_avg_format, of, lane);
    load_moment(leaf.exp_avg_sq[lane], u.exp_avg_sq, u.exp_avg_sq_scales, u.exp_avg_sq_format, of,
                lane);
  });
}

OTR_DEVICE void load_leaf(Leaf& leaf, const Update& u, const LeafOf& of) {
  each_lane([&](int lane) {
    load(leaf.grad[lane], u.grad, u.grad_format, of.at(lane), of.mine(lane));
    load_weights(leaf.weight[lane], u, of, lane);
  });
  load_moments(leaf, u, of);
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

// scalars: in place of the update's own.
OTR_DEVICE void update_leaf(const Update& u, const UpdateScalars& scalars, int64_t first,
                            Scratch& scratch, CountBlock& counts) {
  const LeafOf of(u, first);
  Leaf leaf;
  PerLane<uint32_t> updated;  // a bit for each element
  PerLane<Lane> old;
  load_leaf(leaf, u, of);
  draw_for(u, of, scratch);
  each_lane([&](int lane) {
    updated[lane] = 0;
    for (int i = 0; i < kPerLane; ++i) {
      old[lane][i] = leaf.weight[lane][i];
      const reference::Stepped e =
          reference::stepped(u.rule, scalars, u.exp_avg != nullptr, leaf.grad[lane][i],
                             old[lane][i], leaf.exp_avg[lane][i], leaf.exp_avg_sq[lane][i]);
      leaf.weight[lane][i] = e.weight;
      leaf.exp_avg[lane][i] = e.exp_avg;
      leaf.exp_avg_sq[lane][i] = e.exp_avg_sq;
      if (e.update && i < of.mine(lane)) updated[lane] |= 1U << i;
    }
  });
  if (u.rule != Rule::lamb) store_moments(leaf, u, of, scratch);
  each_lane([&](int lane) {
    Lane published;
    for (int i = 0; i < kPerLane; ++i) published[i] = leaf.weight[lane][i];
    store_weights(leaf.weight[lane], u, of, scratch, lane);
    if (u.published != nullptr && u.weight_format == Format::float32) {
      store_nearest(u.published, u.published_format, of.at(lane), of.mine(lane), published);
    }
    uint32_t updates = 0, vanished = 0;
    for (int i = 0; i < kPerLane; ++i) {
      if ((updated[lane] >> i & 1U) == 0) continue;
      ++updates;
      vanished += reference::bits_of(leaf.weight[lane][i]) == reference::bits_of(old[lane][i]);
    }
    if (updates != 0) add_to(counts.updates, updates);
    if (vanished != 0) add_to(counts.vanished, vanished);
  });
}

OTR_DEVICE void update_leaf(const Update& u, int64_t first, Scratch& scratch, CountBlock& counts) {
  update_leaf(u, u.scalars, first, scratch, counts);
}

// What a leaf's lanes have, to the scratch and into the sum.
template <class Value>
OTR_DEVICE void add_squares_of(NormBlock& sum, const LeafOf& of, Scratch& scratch,
                               const Value& value) {
  sync();
  each_lane([&](int lane) {
    for (int i = 0; i < kPerLane; ++i) scratch.values[lane * kPerLane + i] = value(lane, i);
  });
  sync();
  add_squares(sum, scratch, of.count, [&](int i) { lower_to(sum.first, first_of(i, -1)); });
}

OTR_DEVICE void lamb_norms_leaf(const Update& u, int64_t first, Scratch& scratch,
                                NormBlock& weights, NormBlock& directions) {
  const LeafOf of(u, first);
  Leaf leaf;
  load_leaf(leaf, u, of);
  draw_for(u, of, scratch);
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
  load_moments(leaf, u, of);  // as stored
  add_squares_of(weights, of, scratch, [&](int lane, int i) { return leaf.weight[lane][i]; });
  add_squares_of(directions, of, scratch, [&](int lane, int i) {
    return reference::lamb_direction(u.scalars, leaf.weight[lane][i], leaf.exp_avg[lane][i],
                                     leaf.exp_avg_sq[lane][i]);
  });
}

OTR_DEVICE void muon_direction_leaf(const Update& u, int64_t first, Scratch& scratch,
                                    float* direction) {
  const LeafOf of(u, first);
  Leaf leaf;
  draw_for(u, of, scratch);
  each_lane([&](int lane) {
    load(leaf.grad[lane], u.grad, u.grad_format, of.at(lane), of.mine(lane));
    load_moment(leaf.exp_avg[lane], u.exp_avg, u.exp_avg_scales, u.exp_avg_format, of, lane);
    Lane out;
    for (int i = 0; i < kPerLane; ++i) {
      float& m = leaf.exp_avg[lane][i];
      const float g = reference::gradient_of(u.rule, u.scalars, leaf.grad[lane][i], 0);
      out[i] = reference::canonical(reference::muon_direction(u.scalars, g, m));
      m = reference::canonical(m);
    }
    store_nearest<Float32>(direction, of.at(lane), of.mine(lane), out);
  });
  store_moment(leaf.exp_avg, u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.exp_avg_rounding,
               Draw::exp_avg, of, scratch);
}

}  // namespace outrigger::kernels::cuda

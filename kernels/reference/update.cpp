// SPDX-License-Identifier: Apache-2.0
// The oracle of every rule: a leaf's values as float32, each element stepped, each value stored.
#include "kernels/reference/update.h"

#include <algorithm>

#include "kernels/reference/block8.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/split.h"
#include "kernels/update_part.h"

namespace outrigger::kernels::reference {
namespace {

struct Leaf {
  float grad[kLeaf], weight[kLeaf], exp_avg[kLeaf], exp_avg_sq[kLeaf];
};

void load(float* values, const void* stored, const float* scales, Format format, int64_t count) {
  if (stored == nullptr) {
    std::fill_n(values, count, 0.0F);
  } else if (is_block(format)) {
    reference::unpack(values, stored, scales, format, count);
  } else {
    with_element(format, [&](auto e) {
      using E = decltype(e);
      const auto* from = static_cast<const typename E::Storage*>(stored);
      for (int64_t i = 0; i < count; ++i) values[i] = E::load(from[i]);
    });
  }
}

void store(void* stored, float* scales, Format format, Rounding rounding, Draw draw,
           const RandomStream& random, const float* values, int64_t count) {
  if (stored == nullptr) return;
  if (is_block(format)) {
    reference::pack(stored, scales, format, values, count,
                    {rounding, random.key, random.first_element, random.step, draw});
    return;
  }
  if (format == Format::bfloat16 && rounding == Rounding::stochastic) {
    auto* to = static_cast<uint16_t*>(stored);
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t element = random.first_element + static_cast<uint64_t>(i);
      to[i] = round_to_bfloat16(values[i], random16(random.key, element, random.step, draw));
    }
    return;
  }
  with_element(format, [&](auto e) {
    using E = decltype(e);
    auto* to = static_cast<typename E::Storage*>(stored);
    for (int64_t i = 0; i < count; ++i) to[i] = E::store(values[i]);
  });
}

void load_weights(float* values, const Update& u) {
  if (u.remainder == nullptr) {
    load(values, u.weight, nullptr, u.weight_format, u.count);
    return;
  }
  const auto* published = static_cast<const uint16_t*>(u.weight);
  for (int64_t i = 0; i < u.count; ++i) values[i] = join(published[i], u.remainder[i]);
}

void store_weights(const Update& u, const float* values) {
  if (u.remainder == nullptr) {
    store(u.weight, nullptr, u.weight_format, u.weight_rounding, Draw::weight, u.random, values,
          u.count);
    return;
  }
  auto* published = static_cast<uint16_t*>(u.weight);
  for (int64_t i = 0; i < u.count; ++i) {
    const Halves halves = split_of(values[i]);
    published[i] = halves.published;
    u.remainder[i] = halves.remainder;
  }
}

void load_leaf(Leaf& leaf, const Update& u) {
  load(leaf.grad, u.grad, nullptr, u.grad_format, u.count);
  load_weights(leaf.weight, u);
  load(leaf.exp_avg, u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.count);
  load(leaf.exp_avg_sq, u.exp_avg_sq, u.exp_avg_sq_scales, u.exp_avg_sq_format, u.count);
}

void store_moments(const Update& u, const Leaf& leaf) {
  store(u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.exp_avg_rounding, Draw::exp_avg, u.random,
        leaf.exp_avg, u.count);
  store(u.exp_avg_sq, u.exp_avg_sq_scales, u.exp_avg_sq_format, u.exp_avg_sq_rounding,
        Draw::exp_avg_sq, u.random, leaf.exp_avg_sq, u.count);
}

UpdateCount update_leaf(const Update& u) {
  Leaf leaf;
  load_leaf(leaf, u);
  float old[kLeaf];
  bool updated[kLeaf];
  std::copy_n(leaf.weight, u.count, old);
  for (int64_t i = 0; i < u.count; ++i) {
    const Stepped e = stepped(u.rule, u.scalars, u.exp_avg != nullptr, leaf.grad[i], old[i],
                              leaf.exp_avg[i], leaf.exp_avg_sq[i]);
    leaf.weight[i] = e.weight;
    leaf.exp_avg[i] = e.exp_avg;
    leaf.exp_avg_sq[i] = e.exp_avg_sq;
    updated[i] = e.update;
  }
  if (u.rule != Rule::lamb) store_moments(u, leaf);
  store_weights(u, leaf.weight);
  if (u.published != nullptr && u.weight_format == Format::float32) {
    store(u.published, nullptr, u.published_format, Rounding::nearest, Draw::weight, u.random,
          leaf.weight, u.count);
  }
  load_weights(leaf.weight, u);
  UpdateCount count;
  for (int64_t i = 0; i < u.count; ++i) {
    count.updates += updated[i] ? 1 : 0;
    count.vanished += updated[i] && bits_of(leaf.weight[i]) == bits_of(old[i]) ? 1 : 0;
  }
  return count;
}

void lamb_norms_of_leaf(const Update& u, NormSum& weights, NormSum& directions) {
  Leaf leaf;
  load_leaf(leaf, u);
  for (int64_t i = 0; i < u.count; ++i) {
    const float g = gradient_of(u.rule, u.scalars, leaf.grad[i], leaf.weight[i]);
    adam_moments(u.scalars, g, leaf.exp_avg[i], leaf.exp_avg_sq[i]);
    leaf.exp_avg[i] = canonical(leaf.exp_avg[i]);
    leaf.exp_avg_sq[i] = canonical(leaf.exp_avg_sq[i]);
  }
  store_moments(u, leaf);
  load_leaf(leaf, u);  // the moments as stored
  add_squares_of_leaf(weights, u.count, 0, [&](int64_t i) { return leaf.weight[i]; });
  add_squares_of_leaf(directions, u.count, 0, [&](int64_t i) {
    return lamb_direction(u.scalars, leaf.weight[i], leaf.exp_avg[i], leaf.exp_avg_sq[i]);
  });
}

void muon_direction_of_leaf(const Update& u, float* direction) {
  Leaf leaf;
  load(leaf.grad, u.grad, nullptr, u.grad_format, u.count);
  load(leaf.exp_avg, u.exp_avg, u.exp_avg_scales, u.exp_avg_format, u.count);
  for (int64_t i = 0; i < u.count; ++i) {
    const float g = gradient_of(u.rule, u.scalars, leaf.grad[i], 0);
    direction[i] = canonical(muon_direction(u.scalars, g, leaf.exp_avg[i]));
    leaf.exp_avg[i] = canonical(leaf.exp_avg[i]);
  }
  store_moments(u, leaf);
}

template <class Body>
void for_each_leaf(const Update& u, const Body& body) {
  for (int64_t first = 0; first < u.count; first += kLeaf) {
    body(part_of(u, first, std::min(kLeaf, u.count - first)));
  }
}

}  // namespace

UpdateCount update(const Update& u) {
  UpdateCount count;
  for_each_leaf(u, [&](const Update& leaf) { add(count, update_leaf(leaf)); });
  return count;
}

void lamb_norms(const Update& u, NormSum& weights, NormSum& directions) {
  for_each_leaf(u, [&](const Update& leaf) { lamb_norms_of_leaf(leaf, weights, directions); });
}

void muon_direction(const Update& u, float* direction) {
  for_each_leaf(u, [&](const Update& leaf) {
    muon_direction_of_leaf(leaf, direction);
    direction += leaf.count;
  });
}

}  // namespace outrigger::kernels::reference

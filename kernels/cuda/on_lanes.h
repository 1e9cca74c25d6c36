// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels on the host, as kernels.h has them: the lanes of one warp in a loop, a leaf
// after the other. For tests, and for the simulated device, which so runs in an engine what a GPU
// will.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/convert.h"
#include "kernels/cuda/decide.h"
#include "kernels/cuda/fold.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/product.h"
#include "kernels/float_environment.h"
#include "kernels/fold_origin.h"

namespace outrigger::kernels::cuda::on_lanes {

template <class Body>
void each_leaf(int64_t count, const Body& body) {
  const FloatEnvironment environment;
  for (int64_t first = 0; first < count; first += kLeaf) body(first);
}

[[nodiscard]] inline UpdateCount update(const Update& u) {
  Scratch scratch;
  Counts counts;
  CountBlock all;
  begin(counts);
  const int form = form_of(u);
  if (form < 0) {
    each_leaf(u.count, [&](int64_t first) { update_leaf(u, first, scratch, counts); });
  } else {
    with_form(form, [&](auto known) {
      each_leaf(u.count, [&](int64_t first) {
        update_leaf_of_form<known()>(u, u.scalars, first, scratch, counts);
      });
    });
  }
  add_counts(all, counts);
  return {static_cast<int64_t>(all.updates), static_cast<int64_t>(all.vanished)};
}

inline void decide(const Decide& how, const unsigned char* sums, int64_t stride, int64_t count,
                   Decided& out) {
  const FloatEnvironment environment;
  NormBlock total;
  cuda::decide(how, sums, stride, count, total, out);
}

// By a decision, whose counts it adds to.
inline void update(const Update& u, Decided& decided) {
  if (decided.skip != 0) return;
  const UpdateScalars scalars = decided_scalars(u, decided);
  Scratch scratch;
  Counts counts;
  begin(counts);
  each_leaf(u.count, [&](int64_t first) {
    update_leaf(u, scalars, LeafOf(u.count, first), scratch, counts);
  });
  add_counts(decided.counts, counts);
}

inline void lamb_norms(const Update& u, NormSum& weights, NormSum& directions) {
  Scratch scratch;
  NormBlock w, d;
  WarpNorm of_weights, of_directions;
  begin(of_weights, &w);
  begin(of_directions, &d);
  each_leaf(u.count,
            [&](int64_t first) { lamb_norms_leaf(u, first, scratch, of_weights, of_directions); });
  end(of_weights);
  end(of_directions);
  merge(weights, carried(w));
  merge(directions, carried(d));
}

inline void muon_direction(const Update& u, float* direction) {
  Scratch scratch;
  each_leaf(u.count, [&](int64_t first) { muon_direction_leaf(u, first, scratch, direction); });
}

inline void add_fold(const Fold& fold, NormBlock& block) {
  const FloatEnvironment environment;
  with_number(fold.accumulator_format,
              [&](auto a) { fold_of_warp<decltype(a)>(fold, 0, 1, true, block); });
}

inline void fold(const Fold& fold, SumBlock& sum) {
  begin_sum(sum, fold.add);
  add_fold(fold, sum.now);
}

// Without sources: the norm of the accumulator alone. Adds to *fold.norm.
inline Origin fold(const Fold& fold) {
  NormBlock block;
  add_fold(fold, block);
  const NormSum norm = carried(block);
  if (fold.norm != nullptr) merge(*fold.norm, norm);
  return {norm.first_nonfinite, rank_of(block)};
}

inline void convert(const Conversion& c) {
  each_leaf(c.count, [&](int64_t first) {
    if (c.ndim == 0) return convert_plain(c, first);
    convert_strided(c, first);
  });
}

inline void product(const Product& p) {
  const FloatEnvironment environment;
  ProductScratch scratch;
  for (int64_t row = 0; row < p.rows; row += kTile) {
    for (int64_t column = 0; column < p.columns; column += kTile) {
      product_tile(p, row, column, scratch);
    }
  }
}

}  // namespace outrigger::kernels::cuda::on_lanes

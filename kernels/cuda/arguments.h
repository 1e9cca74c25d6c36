// SPDX-License-Identifier: Apache-2.0
// What each kernel of kernels.cu is given: one struct by value, as its only parameter. Whoever
// launches a kernel writes it, so there is no memory for arguments, and nothing to wait for.
#pragma once

#include "kernels/cuda/convert.h"
#include "kernels/cuda/decide.h"
#include "kernels/cuda/fold.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/lists.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/update.h"

namespace outrigger::kernels::cuda {

// What a launch takes on every device and driver.
inline constexpr size_t kMostArgumentBytes = 4096;

// Of an update what is its own; the rest is its list's, for a kernel reads that without a detour.
struct UpdatePiece {
  const void* grad;
  void *weight, *exp_avg, *exp_avg_sq;
  void* out;  // what is published; Muon's direction
  uint16_t* remainder;
  float *exp_avg_scales, *exp_avg_sq_scales;
  int64_t count;
  uint64_t first_element;  // of the random stream
  float minus_step;        // LAMB's has each parameter's trust ratio in it
};
inline constexpr int kUpdates = 38;
struct Updates {
  Update common;
  int64_t form = -1;  // of all of them
  List<UpdatePiece, kUpdates> list;

  // On the host: false if the list is full, or of other updates.
  bool add(const Update& u, void* out);
};
[[nodiscard]] OTR_DEVICE Update update_of(const Update& common, const UpdatePiece& piece) {
  Update u = common;
  u.grad = piece.grad;
  u.weight = piece.weight;
  u.exp_avg = piece.exp_avg;
  u.exp_avg_sq = piece.exp_avg_sq;
  u.published = piece.out;
  u.remainder = piece.remainder;
  u.exp_avg_scales = piece.exp_avg_scales;
  u.exp_avg_sq_scales = piece.exp_avg_sq_scales;
  u.count = piece.count;
  u.random.first_element = piece.first_element;
  u.scalars.minus_step = piece.minus_step;
  return u;
}
inline bool Updates::add(const Update& u, void* out) {
  const UpdatePiece piece{u.grad,
                          u.weight,
                          u.exp_avg,
                          u.exp_avg_sq,
                          out,
                          u.remainder,
                          u.exp_avg_scales,
                          u.exp_avg_sq_scales,
                          u.count,
                          u.random.first_element,
                          u.scalars.minus_step};
  const Update rest = update_of(u, UpdatePiece{});
  if (list.count == 0) {
    common = rest;
    form = form_of(u);
  }
  return rest == common && form_of(u) == form && list.add(piece, piece.count);
}
// body(the update, its number, a leaf's first element in it) for all leaves of one of the warps.
template <class Body>
OTR_DEVICE void each_update(const Updates& updates, int64_t warp, int64_t warps, const Body& body) {
  each_leaf(updates.list, warp, warps, [&](int64_t piece, int64_t first) {
    body(update_of(updates.common, updates.list.pieces[piece]), piece, first);
  });
}

struct UpdateArguments {
  Updates updates;
  CountBlock* counts;  // added to; null: nobody counts
};
struct DecidedUpdateArguments {
  Updates updates;
  Decided* decided;  // read, and its counts are added to
};
struct LambNormsArguments {
  Updates updates;
  NormBlock* norms;  // two of each piece, added to: of the weights and of the directions
};
struct MuonArguments {
  Updates updates;
};

// One element after the other; the list's common one says how.
struct ConvertPiece {
  void* to;
  const void* from;
  int64_t count;
};
struct ConvertArguments {
  Conversion common;
  List<ConvertPiece, 110> list;

  // On the host: false if the list is full, or of other conversions. c: one element after the
  // other.
  bool add(const Conversion& c) {
    const auto is_same = [&] {
      return c.to_format == common.to_format && c.from_format == common.from_format &&
             c.add == common.add && c.factor == common.factor;
    };
    if (list.count == 0) common = c;
    return is_same() && list.add({c.to, c.from, c.count}, c.count);
  }
};
struct ConvertStridedArguments {
  List<Conversion, 9> list;
};
OTR_DEVICE void convert_of_warp(const ConvertArguments& a, int64_t warp, int64_t warps) {
  each_leaf(a.list, warp, warps, [&](int64_t piece, int64_t first) {
    Conversion c = a.common;
    c.to = a.list.pieces[piece].to;
    c.from = a.list.pieces[piece].from;
    c.count = a.list.pieces[piece].count;
    convert_plain(c, first);
  });
}
struct FoldArguments {
  static constexpr int kSources = 480;
  Fold fold;        // its sources and its norm are these:
  NormBlock* norm;  // null, or added to
  const void* sources[kSources];
};
struct BeginSumArguments {
  SumBlock* sum;
  int32_t add;
};
struct DecideArguments {
  Decide how;
  const unsigned char* sums;
  int64_t stride, count;
  Decided* out;
};
struct ProductArguments {
  Product product;
};
static_assert(sizeof(UpdateArguments) <= kMostArgumentBytes);
static_assert(sizeof(DecidedUpdateArguments) <= kMostArgumentBytes);
static_assert(sizeof(LambNormsArguments) <= kMostArgumentBytes);
static_assert(sizeof(MuonArguments) <= kMostArgumentBytes);
static_assert(sizeof(ConvertArguments) <= kMostArgumentBytes);
static_assert(sizeof(ConvertStridedArguments) <= kMostArgumentBytes);
static_assert(sizeof(FoldArguments) <= kMostArgumentBytes);

enum class Kernel : uint8_t {
  update,
  lamb_norms,
  muon_direction,
  fold_float32,
  fold_bfloat16,
  fold_float16,
  convert,
  product,
  update_decided,
  begin_sum,
  decide,
  convert_strided,
  update_form,                         // and those of the other forms
  decided_form = update_form + kForms  // likewise
};
inline constexpr int kKernels = static_cast<int>(Kernel::decided_form) + kForms;
// The names in kernels.cu, in the enum's order.
inline constexpr const char* kKernelNames[kKernels] = {
    "otr_update",         "otr_lamb_norms",   "otr_muon_direction", "otr_fold_float32",
    "otr_fold_bfloat16",  "otr_fold_float16", "otr_convert",        "otr_product",
    "otr_update_decided", "otr_begin_sum",    "otr_decide",         "otr_convert_strided",
    "otr_update_0",       "otr_update_1",     "otr_update_2",       "otr_update_3",
    "otr_update_4",       "otr_update_5",     "otr_decided_0",      "otr_decided_1",
    "otr_decided_2",      "otr_decided_3",    "otr_decided_4",      "otr_decided_5"};
// general: of the two kernels that have forms.
[[nodiscard]] constexpr Kernel kernel_of(Kernel general, int64_t form) {
  if (form < 0) return general;
  const Kernel first = general == Kernel::update ? Kernel::update_form : Kernel::decided_form;
  return static_cast<Kernel>(static_cast<int64_t>(first) + form);
}
struct Formed {
  Kernel general;
  int form;  // -1: none
};
[[nodiscard]] constexpr Formed formed(Kernel kernel) {
  const int number = static_cast<int>(kernel) - static_cast<int>(Kernel::update_form);
  if (number < 0) return {kernel, -1};
  return {number < kForms ? Kernel::update : Kernel::update_decided, number % kForms};
}

// Two norms of each piece: of its weights, and of its directions.
OTR_DEVICE void lamb_norms_of_warp(const Updates& updates, int64_t warp, int64_t warps,
                                   Scratch& scratch, NormBlock* norms) {
  WarpNorm weights, directions;
  int64_t of = -1;
  const auto finish = [&] {
    if (of < 0) return;
    end(weights);
    end(directions);
  };
  each_update(updates, warp, warps, [&](const Update& u, int64_t piece, int64_t first) {
    if (piece != of) {
      finish();
      of = piece;
      begin(weights, norms + 2 * piece);
      begin(directions, norms + 2 * piece + 1);
    }
    lamb_norms_leaf(u, first, scratch, weights, directions);
  });
  finish();
}

// Blocks that a whole piece of work fills. A kernel takes what is beyond its grid in turns, but for
// a product's, which has a block for each tile.
[[nodiscard]] constexpr int64_t blocks_of(int64_t leaves, int64_t leaves_of_warp) {
  const int64_t of_block = kWarps * leaves_of_warp;
  return (leaves + of_block - 1) / of_block;
}
[[nodiscard]] constexpr int64_t tiles_in(int64_t elements) {
  return (elements + kTile - 1) / kTile;
}

}  // namespace outrigger::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
// What each kernel of kernels.cu is given: one struct by value, as its only parameter. Whoever
// launches a kernel writes it, so there is no memory for arguments, and nothing to wait for.
#pragma once

#include "kernels/cuda/convert.h"
#include "kernels/cuda/decide.h"
#include "kernels/cuda/fold.h"
#include "kernels/cuda/lists.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/update.h"

namespace outrigger::kernels::cuda {

// What a launch takes on every device and driver.
inline constexpr size_t kMostArgumentBytes = 4096;

using Updates = List<Update, 17>;
struct UpdateArguments {
  Updates list;
  CountBlock* counts;  // added to; null: nobody counts
};
struct DecidedUpdateArguments {
  Updates list;
  Decided* decided;  // read, and its counts are added to
};
struct LambNormsArguments {
  Updates list;
  NormBlock* norms;  // two of each piece, added to: of the weights and of the directions
};
struct MuonArguments {
  Updates list;
  float* directions[Updates::kPieces];  // where each piece's begins
};
struct ConvertArguments {
  List<Conversion, 9> list;
};
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
  decide
};
inline constexpr int kKernels = 11;
// The names in kernels.cu, in the enum's order.
inline constexpr const char* kKernelNames[kKernels] = {
    "otr_update",         "otr_lamb_norms",   "otr_muon_direction", "otr_fold_float32",
    "otr_fold_bfloat16",  "otr_fold_float16", "otr_convert",        "otr_product",
    "otr_update_decided", "otr_begin_sum",    "otr_decide"};

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

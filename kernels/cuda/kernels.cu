// SPDX-License-Identifier: Apache-2.0
// The kernels that a CUDA device runs: which leaf is which warp's. What is done with it stands in
// the headers beside, which the tests of a machine without a GPU run, too.
#include "kernels/cuda/convert.h"
#include "kernels/cuda/fold.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/update.h"

namespace outrigger::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kLanes;
constexpr int64_t kRun = 4;  // leaves that a warp takes at a time

// A list of work, one piece behind the other; leaf_ends[i]: how many leaves the first i + 1 of them
// have.
template <class Piece>
struct List {
  const Piece* pieces;
  const int64_t* leaf_ends;
  int64_t count;
};

__device__ int warp_in_block() { return static_cast<int>(threadIdx.x) / kLanes; }

// The first piece that ends after this leaf.
template <class Piece>
__device__ int64_t piece_of(const List<Piece>& list, int64_t leaf) {
  int64_t low = 0, high = list.count - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (list.leaf_ends[middle] > leaf) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// body(piece, its number, the leaf's first element in it) for all leaves of this warp.
template <class Piece, class Body>
__device__ void each_leaf(const List<Piece>& list, const Body& body) {
  const int64_t leaves = list.leaf_ends[list.count - 1];
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + warp_in_block();
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t run = warp * kRun; run < leaves; run += warps * kRun) {
    const int64_t end = run + kRun < leaves ? run + kRun : leaves;
    int64_t piece = piece_of(list, run);
    for (int64_t leaf = run; leaf < end; ++leaf) {
      while (list.leaf_ends[piece] <= leaf) ++piece;
      const int64_t begin = piece == 0 ? 0 : list.leaf_ends[piece - 1];
      body(list.pieces[piece], piece, (leaf - begin) * kLeaf);
    }
  }
}

template <class Accumulator>
__device__ void fold_all(const Fold& fold, NormBlock* norm) {
  __shared__ Scratch scratch[kWarps];
  __shared__ NormBlock of_block;
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kThreads) of_block.digits[i] = 0;
  if (threadIdx.x == 0) {
    of_block.nonfinite = 0;
    of_block.first = kNone;
  }
  __syncthreads();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps * kLeaf;
  for (int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + warp_in_block()) * kLeaf;
       first < fold.count; first += step) {
    fold_leaf<Accumulator>(fold, first, scratch[warp_in_block()],
                           norm == nullptr ? nullptr : &of_block);
  }
  __syncthreads();
  if (threadIdx.x == 0 && norm != nullptr) merge(*norm, of_block);
}

}  // namespace
}  // namespace outrigger::kernels::cuda

using namespace outrigger::kernels;        // NOLINT(google-build-using-namespace)
using namespace outrigger::kernels::cuda;  // NOLINT(google-build-using-namespace)

extern "C" {

__global__ void __launch_bounds__(kThreads) otr_update(List<Update> list, CountBlock* counts) {
  __shared__ Scratch scratch[kWarps];
  __shared__ CountBlock of_block;
  if (threadIdx.x == 0) of_block.updates = of_block.vanished = 0;
  __syncthreads();
  each_leaf(list, [&](const Update& u, int64_t, int64_t first) {
    update_leaf(u, first, scratch[warp_in_block()], of_block);
  });
  __syncthreads();
  if (threadIdx.x != 0) return;
  add_to(counts->updates, of_block.updates);
  add_to(counts->vanished, of_block.vanished);
}

// norms: two of each piece, of the weights and of the directions.
__global__ void __launch_bounds__(kThreads) otr_lamb_norms(List<Update> list, NormBlock* norms) {
  __shared__ Scratch scratch[kWarps];
  each_leaf(list, [&](const Update& u, int64_t piece, int64_t first) {
    lamb_norms_leaf(u, first, scratch[warp_in_block()], norms[2 * piece], norms[2 * piece + 1]);
  });
}

// directions: where each piece's begins.
__global__ void __launch_bounds__(kThreads)
    otr_muon_direction(List<Update> list, float* const* directions) {
  __shared__ Scratch scratch[kWarps];
  each_leaf(list, [&](const Update& u, int64_t piece, int64_t first) {
    muon_direction_leaf(u, first, scratch[warp_in_block()], directions[piece]);
  });
}

// norm: null, or added to.
__global__ void __launch_bounds__(kThreads) otr_fold_float32(Fold fold, NormBlock* norm) {
  fold_all<Float32>(fold, norm);
}
__global__ void __launch_bounds__(kThreads) otr_fold_bfloat16(Fold fold, NormBlock* norm) {
  fold_all<Bfloat16>(fold, norm);
}
__global__ void __launch_bounds__(kThreads) otr_fold_float16(Fold fold, NormBlock* norm) {
  fold_all<Float16>(fold, norm);
}

__global__ void __launch_bounds__(kThreads) otr_convert(List<Conversion> list) {
  each_leaf(list, [](const Conversion& c, int64_t, int64_t first) { convert_run(c, first); });
}

// A block to a tile: columns of tiles in x, rows in y.
__global__ void __launch_bounds__(kProductThreads) otr_product(Product product) {
  __shared__ ProductScratch scratch;
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTile;
  product_tile(product, row, column, scratch);
}

}  // extern "C"

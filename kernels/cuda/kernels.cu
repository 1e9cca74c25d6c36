// SPDX-License-Identifier: Apache-2.0
// The kernels that a CUDA device runs: which leaf is which warp's. What is done with it stands in
// the headers beside, which the tests of a machine without a GPU run, too.
#include "kernels/cuda/arguments.h"

namespace outrigger::kernels::cuda {
namespace {

__device__ int warp_in_block() { return static_cast<int>(threadIdx.x) / kLanes; }
__device__ int64_t this_warp() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + warp_in_block();
}
__device__ int64_t all_warps() { return static_cast<int64_t>(gridDim.x) * kWarps; }

template <class Accumulator>
__device__ void fold_all(const FoldArguments& a) {
  __shared__ Scratch scratch[kWarps];
  __shared__ NormBlock of_block;
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kThreads) of_block.digits[i] = 0;
  if (threadIdx.x == 0) {
    of_block.nonfinite = 0;
    of_block.first = kNone;
  }
  __syncthreads();
  Fold fold = a.fold;
  fold.sources = a.sources;
  for (int64_t first = this_warp() * kLeaf; first < fold.count; first += all_warps() * kLeaf) {
    fold_leaf<Accumulator>(fold, first, scratch[warp_in_block()],
                           a.norm == nullptr ? nullptr : &of_block);
  }
  __syncthreads();
  if (threadIdx.x == 0 && a.norm != nullptr) merge(*a.norm, of_block);
}

}  // namespace
}  // namespace outrigger::kernels::cuda

using namespace outrigger::kernels;        // NOLINT(google-build-using-namespace)
using namespace outrigger::kernels::cuda;  // NOLINT(google-build-using-namespace)

extern "C" {

__global__ void __launch_bounds__(kThreads) otr_update(const __grid_constant__ UpdateArguments a) {
  __shared__ Scratch scratch[kWarps];
  __shared__ CountBlock of_block;
  if (threadIdx.x == 0) of_block.updates = of_block.vanished = 0;
  __syncthreads();
  each_leaf(a.list, this_warp(), all_warps(), [&](int64_t piece, int64_t first) {
    update_leaf(a.list.pieces[piece], first, scratch[warp_in_block()], of_block);
  });
  __syncthreads();
  if (threadIdx.x != 0 || a.counts == nullptr) return;
  add_to(a.counts->updates, of_block.updates);
  add_to(a.counts->vanished, of_block.vanished);
}

// By a decision that was made before in the stream, whose counts it adds to.
__global__ void __launch_bounds__(kThreads)
    otr_update_decided(const __grid_constant__ DecidedUpdateArguments a) {
  __shared__ Scratch scratch[kWarps];
  __shared__ CountBlock of_block;
  if (a.decided->skip != 0) return;
  if (threadIdx.x == 0) of_block.updates = of_block.vanished = 0;
  __syncthreads();
  each_leaf(a.list, this_warp(), all_warps(), [&](int64_t piece, int64_t first) {
    update_leaf(a.list.pieces[piece], first, scratch[warp_in_block()], of_block, *a.decided);
  });
  __syncthreads();
  if (threadIdx.x != 0) return;
  add_to(a.decided->counts.updates, of_block.updates);
  add_to(a.decided->counts.vanished, of_block.vanished);
}

// Of one block one thread, before the fold that adds to sum->now.
__global__ void otr_begin_sum(const __grid_constant__ BeginSumArguments a) {
  if (threadIdx.x == 0) begin_sum(*a.sum, a.add != 0);
}

// Of one block one warp.
__global__ void otr_decide(const __grid_constant__ DecideArguments a) {
  __shared__ NormBlock total;
  if (threadIdx.x >= kLanes) return;
  decide(a.how, a.sums, a.stride, a.count, total, *a.out);
}

__global__ void __launch_bounds__(kThreads)
    otr_lamb_norms(const __grid_constant__ LambNormsArguments a) {
  __shared__ Scratch scratch[kWarps];
  each_leaf(a.list, this_warp(), all_warps(), [&](int64_t piece, int64_t first) {
    lamb_norms_leaf(a.list.pieces[piece], first, scratch[warp_in_block()], a.norms[2 * piece],
                    a.norms[2 * piece + 1]);
  });
}

__global__ void __launch_bounds__(kThreads)
    otr_muon_direction(const __grid_constant__ MuonArguments a) {
  __shared__ Scratch scratch[kWarps];
  each_leaf(a.list, this_warp(), all_warps(), [&](int64_t piece, int64_t first) {
    muon_direction_leaf(a.list.pieces[piece], first, scratch[warp_in_block()], a.directions[piece]);
  });
}

__global__ void __launch_bounds__(kThreads)
    otr_fold_float32(const __grid_constant__ FoldArguments a) {
  fold_all<Float32>(a);
}
__global__ void __launch_bounds__(kThreads)
    otr_fold_bfloat16(const __grid_constant__ FoldArguments a) {
  fold_all<Bfloat16>(a);
}
__global__ void __launch_bounds__(kThreads)
    otr_fold_float16(const __grid_constant__ FoldArguments a) {
  fold_all<Float16>(a);
}

__global__ void __launch_bounds__(kThreads)
    otr_convert(const __grid_constant__ ConvertArguments a) {
  each_leaf(a.list, this_warp(), all_warps(),
            [&](int64_t piece, int64_t first) { convert_run(a.list.pieces[piece], first); });
}

// A block to a tile, row by row of them.
__global__ void __launch_bounds__(kProductThreads)
    otr_product(const __grid_constant__ ProductArguments a) {
  __shared__ ProductScratch scratch;
  const int64_t tiles = tiles_in(a.product.columns), tile = blockIdx.x;
  product_tile(a.product, tile / tiles * kTile, tile % tiles * kTile, scratch);
}

}  // extern "C"

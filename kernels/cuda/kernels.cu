// SPDX-License-Identifier: Apache-2.0
// The kernels that a CUDA device runs: which leaf is which warp's. What is done with it stands in
// the headers beside, which the tests of a machine without a GPU run, too.
#include "kernels/cuda/arguments.h"

namespace outrigger::kernels::cuda {
namespace {

// Of a multiprocessor at a time, as registers allow: enough loads on their way.
constexpr int kBlocks = 4, kSmallBlocks = 5, kFoldBlocks = 8;

__device__ int warp_in_block() { return static_cast<int>(threadIdx.x) / kLanes; }
__device__ int64_t this_warp() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + warp_in_block();
}
__device__ int64_t all_warps() { return static_cast<int64_t>(gridDim.x) * kWarps; }

// Of all threads of a block.
__device__ void add_of_block(CountBlock& to, CountBlock& of_block, Counts& counts) {
  if (threadIdx.x == 0) of_block.updates = of_block.vanished = 0;
  __syncthreads();
  add_counts(of_block, counts);
  __syncthreads();
  if (threadIdx.x != 0) return;
  add_to(to.updates, of_block.updates);
  add_to(to.vanished, of_block.vanished);
}

constexpr int kNoForm = -1;

template <int kForm>
__device__ void update_all(const UpdateArguments& a) {
  __shared__ Scratch scratch[kWarps];
  __shared__ CountBlock of_block;
  Counts counts;
  begin(counts);
  each_update(a.updates, this_warp(), all_warps(), [&](const Update& u, int64_t, int64_t first) {
    if constexpr (kForm == kNoForm) {
      update_leaf(u, first, scratch[warp_in_block()], counts);
    } else {
      update_leaf_of_form<kForm>(u, u.scalars, first, scratch[warp_in_block()], counts);
    }
  });
  if (a.counts != nullptr) add_of_block(*a.counts, of_block, counts);
}

template <int kForm>
__device__ void update_decided_all(const DecidedUpdateArguments& a) {
  __shared__ Scratch scratch[kWarps];
  __shared__ CountBlock of_block;
  if (a.decided->skip != 0) return;
  Counts counts;
  begin(counts);
  each_update(a.updates, this_warp(), all_warps(), [&](const Update& u, int64_t, int64_t first) {
    const UpdateScalars scalars = decided_scalars(u, *a.decided);
    if constexpr (kForm == kNoForm) {
      update_leaf(u, scalars, LeafOf(u.count, first), scratch[warp_in_block()], counts);
    } else {
      update_leaf_of_form<kForm>(u, scalars, first, scratch[warp_in_block()], counts);
    }
  });
  add_of_block(a.decided->counts, of_block, counts);
}

template <class Accumulator>
__device__ void fold_all(const FoldArguments& a) {
  __shared__ NormBlock of_block;
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kThreads) of_block.digits[i] = 0;
  if (threadIdx.x == 0) {
    of_block.nonfinite = 0;
    of_block.first = kNone;
  }
  __syncthreads();
  Fold fold = a.fold;
  fold.sources = a.sources;
  fold_of_warp<Accumulator>(fold, this_warp(), all_warps(), a.norm != nullptr, of_block);
  __syncthreads();
  if (threadIdx.x == 0 && a.norm != nullptr) merge(*a.norm, of_block);
}

}  // namespace
}  // namespace outrigger::kernels::cuda

using namespace outrigger::kernels;        // NOLINT(google-build-using-namespace)
using namespace outrigger::kernels::cuda;  // NOLINT(google-build-using-namespace)

extern "C" {

__global__ void __launch_bounds__(kThreads, kBlocks)
    otr_update(const __grid_constant__ UpdateArguments a) {
  update_all<kNoForm>(a);
}
// By a decision that was made before in the stream, whose counts it adds to.
__global__ void __launch_bounds__(kThreads, kBlocks)
    otr_update_decided(const __grid_constant__ DecidedUpdateArguments a) {
  update_decided_all<kNoForm>(a);
}
#define OTR_FORM(form, blocks)                                               \
  __global__ void __launch_bounds__(kThreads, blocks)                        \
      otr_update_##form(const __grid_constant__ UpdateArguments a) {         \
    update_all<form>(a);                                                     \
  }                                                                          \
  __global__ void __launch_bounds__(kThreads, blocks)                        \
      otr_decided_##form(const __grid_constant__ DecidedUpdateArguments a) { \
    update_decided_all<form>(a);                                             \
  }
OTR_FORM(0, kBlocks)
OTR_FORM(1, kBlocks)
OTR_FORM(2, kBlocks)
OTR_FORM(3, kBlocks)
OTR_FORM(4, kBlocks)
OTR_FORM(5, kSmallBlocks)
#undef OTR_FORM
static_assert(kForms == 6);

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

__global__ void __launch_bounds__(kThreads, kBlocks)
    otr_lamb_norms(const __grid_constant__ LambNormsArguments a) {
  __shared__ Scratch scratch[kWarps];
  lamb_norms_of_warp(a.updates, this_warp(), all_warps(), scratch[warp_in_block()], a.norms);
}

__global__ void __launch_bounds__(kThreads)
    otr_muon_direction(const __grid_constant__ MuonArguments a) {
  __shared__ Scratch scratch[kWarps];
  each_update(a.updates, this_warp(), all_warps(), [&](const Update& u, int64_t, int64_t first) {
    muon_direction_leaf(u, first, scratch[warp_in_block()], static_cast<float*>(u.published));
  });
}

__global__ void __launch_bounds__(kThreads, kFoldBlocks)
    otr_fold_float32(const __grid_constant__ FoldArguments a) {
  fold_all<Float32>(a);
}
__global__ void __launch_bounds__(kThreads, kFoldBlocks)
    otr_fold_bfloat16(const __grid_constant__ FoldArguments a) {
  fold_all<Bfloat16>(a);
}
__global__ void __launch_bounds__(kThreads, kFoldBlocks)
    otr_fold_float16(const __grid_constant__ FoldArguments a) {
  fold_all<Float16>(a);
}

__global__ void __launch_bounds__(kThreads)
    otr_convert(const __grid_constant__ ConvertArguments a) {
  convert_of_warp(a, this_warp(), all_warps());
}
__global__ void __launch_bounds__(kThreads)
    otr_convert_strided(const __grid_constant__ ConvertStridedArguments a) {
  each_leaf(a.list, this_warp(), all_warps(),
            [&](int64_t piece, int64_t first) { convert_strided(a.list.pieces[piece], first); });
}

// A block to a tile, row by row of them.
__global__ void __launch_bounds__(kProductThreads)
    otr_product(const __grid_constant__ ProductArguments a) {
  __shared__ ProductScratch scratch;
  const int64_t tiles = tiles_in(a.product.columns), tile = blockIdx.x;
  product_tile(a.product, tile / tiles * kTile, tile % tiles * kTile, scratch);
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
// reference/product.h, a tile of 64 × 64 to a block of 256 threads, which have 4 × 4 elements each
// and add in the order of the inner index.
#pragma once

#include "kernels/cuda/warp.h"
#include "kernels/reference/product.h"

namespace outrigger::kernels::cuda {

inline constexpr int kTile = 64, kInner = 16, kOwn = 4;
inline constexpr int kProductThreads = (kTile / kOwn) * (kTile / kOwn);

// A block's shared memory: a part of both factors.
struct ProductScratch {
  float left[kInner]
            [kTile + 1];  // transposed; the column more keeps threads off each other's banks
  float right[kInner][kTile];
};

#if defined(__CUDA_ARCH__)
template <class T>
struct PerThread {
  T own;
  OTR_DEVICE T& operator[](int) { return own; }
};
template <class Body>
OTR_DEVICE void each_thread(Body&& body) {
  body(static_cast<int>(threadIdx.x));
}
OTR_DEVICE void sync_block() { __syncthreads(); }
#else
template <class T>
struct PerThread {
  T threads[kProductThreads];
  T& operator[](int thread) { return threads[thread]; }
};
template <class Body>
inline void each_thread(Body&& body) {
  for (int thread = 0; thread < kProductThreads; ++thread) body(thread);
}
inline void sync_block() {}
#endif

OTR_DEVICE void product_tile(const Product& p, int64_t row, int64_t column,
                             ProductScratch& scratch) {
  using Sums = float[kOwn][kOwn];
  constexpr int kLoads = kTile * kInner / kProductThreads;
  PerThread<Sums> sums;
  each_thread([&](int thread) {
    for (auto& line : sums[thread]) {
      for (float& sum : line) sum = 0;
    }
  });
  for (int64_t k0 = 0; k0 < p.inner; k0 += kInner) {
    sync_block();
    each_thread([&](int thread) {
      for (int n = 0; n < kLoads; ++n) {
        const int at = n * kProductThreads + thread;
        const int i = at / kInner, k = at % kInner;  // of the left one, whose lines are the inner's
        const bool in_left = row + i < p.rows && k0 + k < p.inner;
        scratch.left[k][i] = in_left ? p.left[(row + i) * p.inner + k0 + k] : 0;
        const int j = at % kTile, l = at / kTile;
        const bool in_right = column + j < p.columns && k0 + l < p.inner;
        scratch.right[l][j] = in_right ? p.right[(k0 + l) * p.columns + column + j] : 0;
      }
    });
    sync_block();
    // Not beyond the end: adding a product of zeros makes a negative zero positive.
    const int steps = p.inner - k0 < kInner ? static_cast<int>(p.inner - k0) : kInner;
    each_thread([&](int thread) {
      const int i0 = thread / (kTile / kOwn) * kOwn, j0 = thread % (kTile / kOwn) * kOwn;
      for (int k = 0; k < steps; ++k) {
        for (int i = 0; i < kOwn; ++i) {
          for (int j = 0; j < kOwn; ++j) {
            sums[thread][i][j] =
                std::fma(scratch.left[k][i0 + i], scratch.right[k][j0 + j], sums[thread][i][j]);
          }
        }
      }
    });
  }
  each_thread([&](int thread) {
    const int i0 = thread / (kTile / kOwn) * kOwn, j0 = thread % (kTile / kOwn) * kOwn;
    for (int i = 0; i < kOwn; ++i) {
      for (int j = 0; j < kOwn; ++j) {
        if (row + i0 + i >= p.rows || column + j0 + j >= p.columns) continue;
        const int64_t at = (row + i0 + i) * p.columns + column + j0 + j;
        const float product = p.factor * sums[thread][i][j];
        p.out[at] = p.plus == nullptr ? product : std::fma(p.plus_factor, p.plus[at], product);
      }
    }
  });
}

}  // namespace outrigger::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
// A tile of a matrix product, vector form of reference/product.h. A panel of `right`, a few vectors
// wide, stays in the first-level cache while the rows of `left` run over it.
#include "kernels/reference/product.h"

#include <cstring>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace outrigger::kernels::cpu::HWY_NAMESPACE {
#if HWY_TARGET & OTR_VECTOR_TARGETS

inline constexpr int64_t kDepth = 64;  // of a panel
// Rows at a time: as many sums as the registers hold, which are half as many for AVX2.
inline constexpr int kRows = HWY_TARGET == HWY_AVX2 ? 6 : 8;
static_assert(kProductTile % kPair == 0);

// Goes on with the sums of kCount rows over one panel.
template <int kCount>
HWY_INLINE void add_products(const float* HWY_RESTRICT left, const float* HWY_RESTRICT panel,
                             int64_t depth, float* HWY_RESTRICT sums) {
  const DF df;
  VF lo[kCount], hi[kCount];
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    lo[r] = hn::Load(df, sums + r * kProductTile);
    hi[r] = hn::Load(df, sums + r * kProductTile + kVector);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const VF right_lo = hn::Load(df, panel + k * kPair);
    const VF right_hi = hn::Load(df, panel + k * kPair + kVector);
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
      const VF x = hn::Set(df, left[r * kDepth + k]);
      lo[r] = hn::MulAdd(x, right_lo, lo[r]);
      hi[r] = hn::MulAdd(x, right_hi, hi[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    hn::Store(lo[r], df, sums + r * kProductTile);
    hn::Store(hi[r], df, sums + r * kProductTile + kVector);
  }
}

// A part of a row, to an aligned place: so short that calls of memcpy would take longer.
HWY_INLINE void copy_row(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, int64_t count) {
  const DF df;
  int64_t i = 0;
  for (; i + kVector <= count; i += kVector) hn::Store(hn::LoadU(df, from + i), df, to + i);
  if (i < count) std::memcpy(to + i, from + i, static_cast<size_t>(count - i) * sizeof(float));
}

// out = factor * sums, plus what is to be added, of one row.
HWY_INLINE void finish_row(const Product& p, const float* sums, int64_t at, int64_t columns) {
  const DF df;
  const VF factor = hn::Set(df, p.factor), plus_factor = hn::Set(df, p.plus_factor);
  for (int64_t j = 0; j < columns; j += kVector) {
    const auto here = static_cast<size_t>(HWY_MIN(kVector, columns - j)) * sizeof(float);
    alignas(64) float values[kVector] = {};
    VF x = hn::Mul(factor, hn::Load(df, sums + j));
    if (p.plus != nullptr) {
      std::memcpy(values, p.plus + at + j, here);
      x = hn::MulAdd(plus_factor, hn::Load(df, values), x);
    }
    hn::Store(x, df, values);
    std::memcpy(p.out + at + j, values, here);
  }
}

void product(const Product& p, int64_t row, int64_t column) {
  const int64_t rows = HWY_MIN(kProductTile, p.rows - row);
  const int64_t columns = HWY_MIN(kProductTile, p.columns - column);
  alignas(64) float sums[kProductTile * kProductTile];
  alignas(64) float panels[kDepth * kProductTile];
  alignas(64) float left[kProductTile * kDepth];  // rows a power of two apart share cache sets
  std::memset(sums, 0, static_cast<size_t>(rows * kProductTile) * sizeof(float));
  for (int64_t first = 0; first < p.inner; first += kDepth) {
    const int64_t depth = HWY_MIN(kDepth, p.inner - first);
    for (int64_t i = 0; i < rows; ++i) {
      copy_row(left + i * kDepth, p.left + (row + i) * p.inner + first, depth);
    }
    for (int64_t j = 0; j < columns; j += kPair) {
      float* panel = panels + j * kDepth;
      const int64_t width = HWY_MIN(kPair, columns - j);
      if (width < kPair) std::memset(panel, 0, sizeof(float) * kDepth * kPair);
      for (int64_t k = 0; k < depth; ++k) {
        // The rows of the next panel are pages apart, so nothing else fetches them.
        const int64_t next = HWY_MIN(first + k + kDepth, p.inner - 1);
        const float* ahead = p.right + next * p.columns + column + j;
        hwy::Prefetch(ahead);
        hwy::Prefetch(ahead + width - 1);  // a row of two vectors is two lines
        copy_row(panel + k * kPair, p.right + (first + k) * p.columns + column + j, width);
      }
    }
    for (int64_t j = 0; j < columns; j += kPair) {
      const float* panel = panels + j * kDepth;
      int64_t i = 0;
      for (; i + kRows <= rows; i += kRows) {
        add_products<kRows>(left + i * kDepth, panel, depth, sums + i * kProductTile + j);
      }
      for (; i + 2 <= rows; i += 2) {
        add_products<2>(left + i * kDepth, panel, depth, sums + i * kProductTile + j);
      }
      for (; i < rows; ++i) {
        add_products<1>(left + i * kDepth, panel, depth, sums + i * kProductTile + j);
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    finish_row(p, sums + i * kProductTile, (row + i) * p.columns + column, columns);
  }
}

#endif  // OTR_VECTOR_TARGETS
}  // namespace outrigger::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace outrigger::kernels::cpu {
OTR_EXPORT(ProductFunction, product_for, product)
}  // namespace outrigger::kernels::cpu
#endif

// SPDX-License-Identifier: Apache-2.0
// Matrices on the host, in tiles that the workers share.
#include <algorithm>

#include "core/device/host.h"
#include "kernels/update_part.h"

namespace outrigger::device {
namespace {

constexpr int64_t kTile = kernels::kProductTile;

int64_t tiles_of(int64_t elements) { return (elements + kTile - 1) / kTile; }

// to (columns x rows) = the transpose of a block of from (rows x columns).
void transpose_block(float* to, const float* from, int64_t rows, int64_t columns, int64_t row,
                     int64_t column, int64_t size) {
  for (int64_t j = column; j < std::min(column + size, columns); ++j) {
    for (int64_t i = row; i < std::min(row + size, rows); ++i) {
      to[j * rows + i] = from[i * columns + j];
    }
  }
}

}  // namespace

void Host::muon_direction(const kernels::Update& piece, float* direction) {
  constexpr int64_t kChunk = 64 * kernels::kLeaf;  // of one task
  run((piece.count + kChunk - 1) / kChunk, [&](int64_t task, int32_t) {
    const int64_t first = task * kChunk;
    const int64_t count = std::min(kChunk, piece.count - first);
    kernels::muon_direction(kernels::part_of(piece, first, count), direction + first);
  });
}

void Host::transpose(float* to, const float* from, int64_t rows, int64_t columns) {
  constexpr int64_t kSmall = 16;  // a cache line of either
  run(tiles_of(rows), [&](int64_t task, int32_t) {
    const int64_t end = std::min((task + 1) * kTile, rows);
    for (int64_t column = 0; column < columns; column += kSmall) {
      for (int64_t row = task * kTile; row < end; row += kSmall) {
        transpose_block(to, from, rows, columns, row, column, kSmall);
      }
    }
  });
}

void Host::multiply(const kernels::Product& product, Symmetric symmetric) {
  const int64_t down = tiles_of(product.rows), across = tiles_of(product.columns);
  const bool mirrors = symmetric == Symmetric::yes;
  run(mirrors ? down * (down + 1) / 2 : down * across, [&](int64_t task, int32_t) {
    int64_t i = task / across, j = task % across;
    if (mirrors) {  // row i of the lower triangle has i + 1 tiles
      for (i = 0, j = task; j > i; ++i) j -= i + 1;
    }
    kernels::product(product, i * kTile, j * kTile);
    if (mirrors && i != j) {
      transpose_block(product.out, product.out, product.rows, product.columns, i * kTile, j * kTile,
                      kTile);
    }
  });
}

}  // namespace outrigger::device

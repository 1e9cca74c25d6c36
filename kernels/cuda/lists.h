// SPDX-License-Identifier: Apache-2.0
// Lists of work, and which leaf of them is which warp's.
#pragma once

#include "kernels/cuda/warp.h"

namespace outrigger::kernels::cuda {

inline constexpr int kWarps = 4, kThreads = kWarps * kLanes;  // of a block

// Pieces of work, one behind the other; leaf_ends[i]: how many leaves the first i + 1 of them have.
template <class Piece, int kMost>
struct List {
  static constexpr int kPieces = kMost;
  int64_t count = 0;
  int64_t run = 1;  // leaves that a warp takes at a time
  int64_t leaf_ends[kMost];
  Piece pieces[kMost];

  // On the host: false if it is full.
  bool add(const Piece& piece, int64_t elements) {
    if (count == kMost) return false;
    leaf_ends[count] = leaves() + (elements + kLeaf - 1) / kLeaf;
    pieces[count++] = piece;
    return true;
  }
  [[nodiscard]] int64_t leaves() const { return count == 0 ? 0 : leaf_ends[count - 1]; }
};

// The first piece that ends after this leaf.
template <class List>
OTR_DEVICE int64_t piece_of(const List& list, int64_t leaf) {
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

// body(its piece's number, the leaf's first element in that) for all leaves of one of the warps.
template <class List, class Body>
OTR_DEVICE void each_leaf(const List& list, int64_t warp, int64_t warps, const Body& body) {
  const int64_t leaves = list.leaf_ends[list.count - 1];
  for (int64_t begin = warp * list.run; begin < leaves; begin += warps * list.run) {
    const int64_t end = begin + list.run < leaves ? begin + list.run : leaves;
    int64_t leaf = begin;
    for (int64_t piece = piece_of(list, begin); leaf < end; ++piece) {
      const int64_t first = piece == 0 ? 0 : list.leaf_ends[piece - 1];
      const int64_t last = list.leaf_ends[piece] < end ? list.leaf_ends[piece] : end;
      for (; leaf < last; ++leaf) body(piece, (leaf - first) * kLeaf);
    }
  }
}

}  // namespace outrigger::kernels::cuda

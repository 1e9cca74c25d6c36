// SPDX-License-Identifier: Apache-2.0
// How ranks share out what they sum and keep. Pure, so that a plan can ask before there is a
// communicator.
#pragma once

#include <cstdint>

namespace outrigger::comm {

// Where sums are made first, and what the ranks there keep.
enum class Levels : uint8_t {
  one,      // every rank's slices are exchanged
  hosts,    // on each host; a slice for each rank
  mesh,     // in each group of a mesh, which has all slices
  divided,  // in each group of a mesh, which has all parameters; a slice of states for each rank
};

struct Shape {
  Levels levels = Levels::one;
  int32_t groups = 1;  // of ranks, whose sums are made first
  int32_t slices = 1, slice = 0;
  bool shares_memory = true;  // with the ranks that together have all parameters
  bool counts = true;         // of the ranks that have this slice, it is the first

  // Published parameters are in fewer slices than states where the latter are divided further.
  [[nodiscard]] int32_t parts() const { return levels == Levels::divided ? groups : 1; }
  [[nodiscard]] int32_t published_slices() const { return slices / parts(); }
  [[nodiscard]] int32_t published_slice() const { return slice / parts(); }
};

// Of ranks in groups of `shard`, which divides their number.
[[nodiscard]] Shape mesh_shape(int32_t rank, int32_t ranks, int32_t shard, bool divided);

// What is summed at a time, at most.
struct Traffic {
  int64_t slice;           // elements of one slice
  int64_t bytes;           // of all slices, in the format in which ranks give them
  bool in_blocks = false;  // Reduce::in_blocks
};

// Bytes of host memory that a rank's communicator keeps for that.
[[nodiscard]] int64_t footprint_of(const Shape& shape, const Traffic& traffic);

// Elements of a window with the sums of a mesh's slice, in equal parts for so many groups.
[[nodiscard]] int64_t mesh_sums(int64_t slice, int32_t groups);

}  // namespace outrigger::comm

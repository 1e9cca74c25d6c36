// SPDX-License-Identifier: Apache-2.0
// How a run of values in one of the storage formats becomes tensors of a file: one, or two where a
// format is composed. Nothing is rounded.
//
//   float32, bfloat16, float16   name         F32, BF16, F16
//   split                        name         BF16   the upper halves of float32 values
//                                name.low     U16    what they lack, signed: (upper << 16) + low
//   block8, positive_block8      name         U8     a code for each element
//                                name.scale   F32    of each 256 elements
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/checkpoint/dtype.h"
#include "kernels/kernels.h"

namespace outrigger::checkpoint {

struct Plane {
  std::string_view suffix;
  Dtype dtype;
  int64_t per;  // elements of the run for one of the tensor

  [[nodiscard]] int64_t extent(int64_t count) const { return (count + per - 1) / per; }
  [[nodiscard]] int64_t bytes(int64_t count) const { return extent(count) * size_of(dtype); }
};
[[nodiscard]] std::span<const Plane> planes_of(kernels::Format format);

// A run as it lies in memory. beside: the upper halves of a split one, the scales of blocks.
struct Run {
  const std::byte *data, *beside;
  int64_t count;
};
// A run's part of a plane.
[[nodiscard]] std::span<const std::byte> plane_bytes(kernels::Format format, size_t plane,
                                                     const Run& run);
// A run from planes, in memory of its own. The last block's codes beyond `count` are zero.
struct OwnRun {
  std::vector<std::byte> data, beside;
  void fill(kernels::Format format, std::span<const std::vector<std::byte>> planes, int64_t count);
  void read(float* values, kernels::Format format, int64_t count) const;
};

// "block8" and "positive_block8" have names of their own here.
[[nodiscard]] std::string_view format_name(kernels::Format format);
[[nodiscard]] const kernels::Format* format_named(std::string_view name);  // null: none

}  // namespace outrigger::checkpoint

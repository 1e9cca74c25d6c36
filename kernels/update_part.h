// SPDX-License-Identifier: Apache-2.0
// A run of elements of an update, for whoever splits one.
#pragma once

#include <type_traits>

#include "kernels/kernels.h"

namespace outrigger::kernels {

// The address of an element, of a block format of its code; null stays null.
template <typename T>
auto* advance(T* data, int64_t elements, Format format) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  auto* bytes = static_cast<Byte*>(data);
  return bytes == nullptr ? bytes : bytes + elements * static_cast<int64_t>(size_of(format));
}
// The address of a leaf's scale, whose first element is given.
template <typename T>
T* advance_scales(T* scales, int64_t elements) {
  return scales == nullptr ? scales : scales + elements / kLeaf;
}

// Elements [first, first + count) of an update; first is a multiple of kLeaf, or of 8 where nothing
// is stored in blocks.
inline Update part_of(const Update& whole, int64_t first, int64_t count) {
  Update part = whole;
  part.grad = advance(whole.grad, first, whole.grad_format);
  part.weight = advance(whole.weight, first, whole.weight_format);
  if (whole.remainder != nullptr) part.remainder = whole.remainder + first;
  part.exp_avg = advance(whole.exp_avg, first, whole.exp_avg_format);
  part.exp_avg_sq = advance(whole.exp_avg_sq, first, whole.exp_avg_sq_format);
  part.exp_avg_scales = advance_scales(whole.exp_avg_scales, first);
  part.exp_avg_sq_scales = advance_scales(whole.exp_avg_sq_scales, first);
  part.published = advance(whole.published, first, whole.published_format);
  part.count = count;
  part.random.first_element += static_cast<uint64_t>(first);
  return part;
}

// Fetches the beginning of what an update reads, for a step over many small arrays: kernels fetch
// ahead within an array only.
inline void fetch_begin(const Update& u) {
  constexpr int64_t kLine = 64, kAhead = 2048;
  const auto fetch = [&](const void* data, Format format) {
    const auto* bytes = static_cast<const std::byte*>(data);
    if (bytes == nullptr) return;
    const int64_t most = plain_bytes_of(u.count, format);
    for (int64_t at = 0; at < (most < kAhead ? most : kAhead); at += kLine) {
      __builtin_prefetch(bytes + at, 1, 2);
    }
  };
  fetch(u.grad, u.grad_format);
  fetch(u.weight, u.weight_format);
  fetch(u.remainder, Format::split);
  fetch(u.exp_avg, u.exp_avg_format);
  fetch(u.exp_avg_sq, u.exp_avg_sq_format);
}

// Adds up what parts report.
inline void add(UpdateCount& into, const UpdateCount& part) {
  into.updates += part.updates;
  into.vanished += part.vanished;
}

}  // namespace outrigger::kernels

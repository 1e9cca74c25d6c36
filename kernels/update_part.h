// SPDX-License-Identifier: Apache-2.0
// A run of elements of an update, for whoever splits one.
#pragma once

#include <type_traits>

#include "kernels/kernels.h"

namespace outrigger::kernels {

// The address of an element, of a block's first in a block format; null stays null.
template <typename T>
auto* advance(T* data, int64_t elements, Format format) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  auto* bytes = static_cast<Byte*>(data);
  return bytes == nullptr ? bytes : bytes + bytes_of(elements, format);
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
  part.published = advance(whole.published, first, whole.published_format);
  part.count = count;
  part.random.first_element += static_cast<uint64_t>(first);
  return part;
}

// Adds up what parts report.
inline void add(UpdateCount& into, const UpdateCount& part) {
  into.updates += part.updates;
  into.vanished += part.vanished;
}

}  // namespace outrigger::kernels

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/communicator.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/device/decider.h"

namespace outrigger::comm {

Communicator::Publishing Communicator::publishing(std::string_view) { return {}; }

uint64_t Communicator::reduce(const Reduce& reduce, std::string_view label) {
  if (reduce.in_blocks && slices() > 1) return reduce_in_blocks(reduce, label);
  device::SliceFold slice = reduce.fold;
  slice.sources = exchange(reduce.window, reduce.offset, reduce.slice_bytes, label);
  if (reduce.sum != nullptr) {
    reduce.device.decider()->fold(slice, reduce.sum);
    return end_exchange();
  }
  fold_slices(reduce, slice, label);
  return end_exchange();
}

// The caller's memory is free when they are made.
uint64_t Communicator::reduce_in_blocks(const Reduce& reduce, std::string_view label) {
  const int64_t count = reduce.fold.count;
  const auto number = static_cast<size_t>(slices());
  const size_t bytes = bytes_in_blocks(count);
  Window& blocks = blocks_.room(
      number * bytes, [&](size_t all) { return create_window(WindowKind::per_rank, all, label); },
      [&](uint64_t ticket) { wait_drained(ticket, label); });
  to_blocks(reduce.device, blocks.block(rank()), reduce.window.block(rank()) + reduce.offset,
            reduce.fold.source_format, count, number);
  device::SliceFold slice = reduce.fold;
  slice.source_format = device::Format::block8;
  slice.sources = exchange(blocks, 0, bytes, label);
  fold_slices(reduce, slice, label);
  blocks_.exchanged(end_exchange());
  return 0;
}

void Communicator::to_blocks(device::Device& device, std::byte* blocks, const std::byte* values,
                             device::Format from, int64_t count, size_t number) {
  const size_t bytes = static_cast<size_t>(count) * kernels::size_of(from);
  for (size_t i = 0; i < number; ++i) {
    device.to_blocks(blocks + i * bytes_in_blocks(count), values + i * bytes, from, count);
  }
}

void Communicator::fold_slices(const Reduce& reduce, const device::SliceFold& slice,
                               std::string_view label) {
  const Folded folded = fold(reduce.device, slice, label);
  if (reduce.norm != nullptr) kernels::merge(*reduce.norm, folded.norm);
  if (reduce.origin != nullptr) device::keep_first(*reduce.origin, folded.origin);
}

void Communicator::abort_because(const std::exception& error, std::string_view reason) noexcept {
  if (const auto* own = dynamic_cast<const Error*>(&error)) {
    abort_for(*own, reason);
  } else {
    abort(reason);
  }
}

Communicator::Folded Communicator::fold(device::Device& device, const device::SliceFold& slice,
                                        std::string_view label) {
  try {
    Folded folded;
    folded.norm = device.fold(slice, folded.origin);
    return folded;
  } catch (const std::exception& error) {
    abort_because(error, format_text("its fold of '{}' threw: {}", label, error.what()));
    throw;
  }
}

void Communicator::fold_sums(const Reduce& reduce, std::span<const void* const> sums,
                             device::Format from, std::string_view label) {
  device::SliceFold slice = reduce.fold;
  slice.sources = sums;
  slice.source_format = from;
  const Folded folded = fold(reduce.device, slice, label);
  if (reduce.norm != nullptr && slice_counts()) kernels::merge(*reduce.norm, folded.norm);
  int64_t flat = folded.origin.flat;
  // Somewhere in the block: whoever has seen the element itself knows better.
  if (flat >= 0 && from == device::Format::block8) flat |= kernels::kLeaf - 1;
  if (reduce.origin != nullptr) device::keep_first(*reduce.origin, {flat, -1});
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/communicator.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/device/decider.h"

namespace outrigger::comm {

Communicator::Publishing Communicator::publishing(std::string_view) { return {}; }

uint64_t Communicator::reduce(const Reduce& reduce, std::string_view label) {
  device::SliceFold slice = reduce.fold;
  slice.sources = exchange(reduce.window, reduce.offset, reduce.slice_bytes, label);
  if (reduce.sum != nullptr) {
    reduce.device.decider()->fold(slice, reduce.sum);
    return end_exchange();
  }
  const Folded folded = fold(reduce.device, slice, label);
  if (reduce.norm != nullptr) kernels::merge(*reduce.norm, folded.norm);
  if (reduce.origin != nullptr) device::keep_first(*reduce.origin, folded.origin);
  return end_exchange();
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
                             std::string_view label) {
  device::SliceFold slice = reduce.fold;
  slice.sources = sums;
  slice.source_format = device::Format::float32;
  const Folded folded = fold(reduce.device, slice, label);
  if (reduce.norm != nullptr && slice_counts()) kernels::merge(*reduce.norm, folded.norm);
  if (reduce.origin != nullptr) device::keep_first(*reduce.origin, {folded.origin.flat, -1});
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/communicator.h"

#include "core/base/error.h"
#include "core/base/text.h"

namespace outrigger::comm {

uint64_t Communicator::reduce(const Reduce& reduce, std::string_view label) {
  const auto slices = exchange(reduce.window, reduce.offset, reduce.slice_bytes, label);
  try {
    device::SliceFold fold = reduce.fold;
    fold.sources = slices;
    device::Nonfinite origin;
    const kernels::NormSum norm = reduce.device.fold(fold, origin);
    if (reduce.norm != nullptr) kernels::merge(*reduce.norm, norm);
    if (reduce.origin != nullptr) device::keep_first(*reduce.origin, origin);
  } catch (const std::exception& error) {
    abort(format_text("its fold of '{}' threw: {}", label, error.what()));
    throw;
  }
  return end_exchange();
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/host_window.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"

namespace outrigger::comm {

// Large blocks begin at huge pages, so that no huge page belongs to two ranks.
WindowLayout WindowLayout::make(WindowKind kind, int32_t world, size_t bytes) {
  const auto ranks = static_cast<size_t>(world);
  constexpr size_t kMost = std::numeric_limits<size_t>::max() / 4;
  if (bytes > kMost / ranks) {
    fail(OTR_E_OUT_OF_MEMORY, "a window of {} bytes a rank on {} ranks exceeds the address space",
         bytes, world);
  }
  const size_t pages = std::max(round_up(bytes, page_size()), page_size());
  if (kind == WindowKind::common) return {kind, world, bytes, 0, pages};
  const size_t stride = pages < kHugePage ? pages : round_up(pages, kHugePage);
  return {kind, world, bytes, stride, stride * (ranks - 1) + pages};
}

WindowLayout::Part WindowLayout::first_touch(int32_t rank) const {
  const auto r = static_cast<size_t>(rank), ranks = static_cast<size_t>(world);
  if (kind == WindowKind::per_rank) return {r * stride, bytes};
  const size_t unit = total < ranks * kHugePage ? page_size() : kHugePage;
  const size_t part = round_up((total + ranks - 1) / ranks, unit);
  const size_t begin = std::min(r * part, total), end = std::min(begin + part, total);
  return {begin, end - begin};
}

}  // namespace outrigger::comm

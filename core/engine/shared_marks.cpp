// SPDX-License-Identifier: Apache-2.0
#include "core/engine/shared_marks.h"

#include <algorithm>
#include <atomic>

namespace outrigger::engine {
namespace {

constexpr size_t kLine = 64;  // a rank's own, as it is written while others read theirs

}  // namespace

SharedMarks::SharedMarks(comm::Communicator& comm)
    : slices_(comm.slices()),
      slice_(comm.slice()),
      window_(comm.create_window(comm::WindowKind::common, kLine * static_cast<size_t>(slices_),
                                 "marks of published parameters")),
      data_(window_->block(comm.rank())) {
  static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);
}

uint64_t& SharedMarks::of(int32_t slice) const noexcept {
  return *reinterpret_cast<uint64_t*>(data_ + kLine * static_cast<size_t>(slice));
}

void SharedMarks::set(uint64_t parts) noexcept {
  std::atomic_ref(of(slice_)).store(parts, std::memory_order_release);
}

uint64_t SharedMarks::mine() const noexcept {
  return std::atomic_ref(of(slice_)).load(std::memory_order_relaxed);
}

uint64_t SharedMarks::all() const noexcept {
  uint64_t least = UINT64_MAX;
  for (int32_t slice = 0; slice < slices_; ++slice) {
    least = std::min(least, std::atomic_ref(of(slice)).load(std::memory_order_acquire));
  }
  return least;
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// Host memory that the driver has page-locked. It belongs to the process: a range that two devices
// lock is registered once, for all contexts.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "plugins/cuda/gpu.h"

namespace outrigger::cuda {

class Pages {
 public:
  // The context is current. Memory that somebody else has registered is left to him.
  void lock(Gpu& gpu, void* data, size_t bytes);
  void unlock(Gpu& gpu, void* data) noexcept;

  // How much of the memory lies in one registration, or in none; whether it is locked. A copy may
  // not go over a registration's end.
  struct Run {
    size_t bytes;
    bool is_locked;
  };
  [[nodiscard]] Run run_of(Gpu& gpu, const void* data, size_t bytes) const;

 private:
  struct Range {
    size_t bytes;
    int users;
    bool is_ours;
  };
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;  // guarded by mutex_
};
[[nodiscard]] Pages& pages();

}  // namespace outrigger::cuda

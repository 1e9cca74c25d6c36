// SPDX-License-Identifier: Apache-2.0
// A device's memory. The host may hold its addresses but not follow them: they are mapped without
// access, and a second mapping of the same pages is what kernels and copy engines use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace outrigger::simulated {

class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Null: no room. fill: what every byte is.
  [[nodiscard]] void* allocate(size_t bytes, int fill);
  // Of a live allocation, rounded up; else 0.
  [[nodiscard]] size_t bytes_of(const void* data) const;
  // False: not the beginning of a live allocation.
  bool release(void* data);
  // Where the device finds [data, data + bytes); null unless it lies in one live allocation.
  [[nodiscard]] std::byte* inside(const void* data, size_t bytes) const;
  [[nodiscard]] size_t total() const { return limit_; }
  [[nodiscard]] size_t free_bytes() const;
  [[nodiscard]] size_t used_bytes() const;
  void set_limit(size_t bytes);  // at most what it was made with

 private:
  size_t capacity_, limit_;
  std::byte* outside_ = nullptr;  // no access
  std::byte* inside_ = nullptr;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> used_;  // offset → bytes, rounded up; guarded by mutex_
  size_t used_bytes_ = 0;
};

}  // namespace outrigger::simulated

// SPDX-License-Identifier: Apache-2.0
// A device's memory in the order of streams, from a pool of its own: what is freed stays there for
// the next allocation, so nothing waits for a driver.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "plugins/cuda/gpu.h"

namespace outrigger::cuda {

// The context is current in every call.
class Memory {
 public:
  explicit Memory(Gpu& gpu);
  ~Memory();  // frees what is left
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Uninitialised, for work that comes after in this stream.
  [[nodiscard]] Pointer allocate(size_t bytes, Stream stream);
  // Zero-filled, for all streams; waits.
  [[nodiscard]] Pointer allocate_for_all(size_t bytes);
  void release(Pointer data, Stream stream);
  // Waits for the device, and gives the pool's rest to other pools and processes.
  void release_after_all(Pointer data);
  // What the pool holds and does not use counts as free.
  void info(uint64_t& free_bytes, uint64_t& total);

 private:
  [[nodiscard]] size_t bytes_of(Pointer data) const;  // throws for no live allocation
  void free(Pointer data, Stream stream);
  [[nodiscard]] uint64_t in_pool(int attribute);
  Gpu& gpu_;
  Pool pool_ = nullptr;
  Stream stream_ = nullptr;  // for what is for all streams
  mutable std::mutex mutex_;
  std::map<Pointer, size_t> live_;  // guarded by mutex_
};

}  // namespace outrigger::cuda

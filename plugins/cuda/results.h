// SPDX-License-Identifier: Apache-2.0
// What kernels tell the host: a block of device memory that they add to, and host memory where it
// goes and is read by a function in the stream's order. Each stream's blocks are kept and used
// again, so none is made while the host is no further ahead of its device than it was before.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "c_api/include/outrigger_plugin.h"
#include "kernels/cuda/arguments.h"
#include "plugins/cuda/memory.h"

namespace outrigger::cuda {

// The context is current in every call.
class Results {
 public:
  static constexpr size_t kMostNorms = 2 * kernels::cuda::kUpdates;

  Results(Gpu& gpu, Memory& memory);
  ~Results();  // all work is done
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  class Block;
  // A block that holds zeros from here on in the stream's order. What it is for is told before the
  // kernels; who throws before deliver() leaves it unused until the end.
  Block& counts(otr_plugin_update_count* total, Stream stream);
  Block& norms(Stream stream, size_t count);
  // Once the kernels that add to it are in the stream: its way to who asked for it.
  void deliver(Block& block);

 private:
  static constexpr size_t kBytes = kMostNorms * sizeof(kernels::cuda::NormBlock);
  struct Chunk;
  Block& take(Stream stream, size_t bytes);
  void give_back(Block& block);
  void make_chunk(Stream stream);
  static void arrive(void* block);
  void begin(Block& block);
  Gpu& gpu_;
  Memory& memory_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // guarded by mutex_
  std::map<Stream, std::vector<Block*>> free_;  // guarded by mutex_
};

class Results::Block {
 public:
  [[nodiscard]] kernels::cuda::CountBlock* counts() const {
    return at<kernels::cuda::CountBlock>();
  }
  [[nodiscard]] kernels::cuda::NormBlock* norms() const { return at<kernels::cuda::NormBlock>(); }
  // Where the norms go, on the host; null: nowhere.
  std::array<otr_plugin_norm*, kMostNorms> to{};

 private:
  friend class Results;
  template <typename T>
  T* at() const {
    return reinterpret_cast<T*>(static_cast<uintptr_t>(device_));
  }
  Results* owner_ = nullptr;
  Stream stream_ = nullptr;
  Pointer device_ = 0;
  std::byte* host_ = nullptr;
  size_t bytes_ = 0;
  otr_plugin_update_count* total_ = nullptr;
};

}  // namespace outrigger::cuda

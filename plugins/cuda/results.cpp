// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/results.h"

#include <new>
#include <utility>

#include "plugins/common/work.h"

namespace outrigger::cuda {

using kernels::cuda::CountBlock;
using kernels::cuda::NormBlock;

struct Results::Chunk {
  static constexpr size_t kBlocks = 4;
  std::array<Block, kBlocks> blocks;
  Pointer device = 0;
  void* host = nullptr;
};

Results::Results(Gpu& gpu, Memory& memory) : gpu_(gpu), memory_(memory) {}

Results::~Results() {
  for (const auto& chunk : chunks_) gpu_.try_call(gpu_.driver.cuMemFreeHost, chunk->host);
}

// Its device memory goes with the device's.
void Results::make_chunk(Stream stream) {
  auto chunk = std::make_unique<Chunk>();
  chunk->device = memory_.allocate(Chunk::kBlocks * kBytes, stream);
  gpu_.call(gpu_.driver.cuMemHostAlloc, &chunk->host, Chunk::kBlocks * kBytes, kPortable);
  for (size_t i = 0; i < Chunk::kBlocks; ++i) {
    Block& block = chunk->blocks[i];
    block.owner_ = this;
    block.stream_ = stream;
    block.device_ = chunk->device + i * kBytes;
    block.host_ = static_cast<std::byte*>(chunk->host) + i * kBytes;
  }
  const std::lock_guard lock(mutex_);
  for (Block& block : chunk->blocks) free_[stream].push_back(&block);
  chunks_.push_back(std::move(chunk));
}

Results::Block& Results::take(Stream stream, size_t bytes) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<Block*>& free = free_[stream];
      if (!free.empty()) {
        Block& block = *free.back();
        free.pop_back();
        block.bytes_ = bytes;
        block.total_ = nullptr;
        block.to = {};
        return block;
      }
    }
    make_chunk(stream);
  }
}

void Results::give_back(Block& block) {
  const std::lock_guard lock(mutex_);
  free_[block.stream_].push_back(&block);
}

void Results::begin(Block& block) {
  gpu_.call(gpu_.driver.cuMemcpyHtoDAsync_v2, block.device_, block.host_, block.bytes_,
            block.stream_);
}

Results::Block& Results::counts(otr_plugin_update_count* total, Stream stream) {
  Block& block = take(stream, sizeof(CountBlock));
  block.total_ = total;
  new (block.host_) CountBlock{};
  begin(block);
  return block;
}

Results::Block& Results::norms(Stream stream, size_t count) {
  Block& block = take(stream, count * sizeof(NormBlock));
  for (size_t i = 0; i < count; ++i) new (block.host_ + i * sizeof(NormBlock)) NormBlock{};
  begin(block);
  return block;
}

void Results::deliver(Block& block) {
  gpu_.call(gpu_.driver.cuMemcpyDtoHAsync_v2, block.host_, block.device_, block.bytes_,
            block.stream_);
  gpu_.call(gpu_.driver.cuLaunchHostFunc, block.stream_, arrive, &block);
}

// On a thread of the driver's, which must not call it.
void Results::arrive(void* given) {
  auto& block = *static_cast<Block*>(given);
  if (block.total_ != nullptr) {
    const auto& counts = *std::launder(reinterpret_cast<const CountBlock*>(block.host_));
    block.total_->updates += static_cast<int64_t>(counts.updates);
    block.total_->vanished += static_cast<int64_t>(counts.vanished);
  } else {
    const auto* const norms = std::launder(reinterpret_cast<const NormBlock*>(block.host_));
    for (size_t i = 0; i < block.bytes_ / sizeof(NormBlock); ++i) {
      if (block.to[i] == nullptr) continue;
      *block.to[i] =
          plugins::written(kernels::cuda::carried(norms[i]), kernels::cuda::rank_of(norms[i]));
    }
  }
  block.owner_->give_back(block);
}

}  // namespace outrigger::cuda

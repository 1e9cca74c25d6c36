// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/checksums.h"

#include <xxhash.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace outrigger::checkpoint {

std::vector<TensorBlock> blocks_of(const Outline& outline) {
  const std::vector<Entry>& entries = outline.entries;
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t tensor) { return entries[tensor].begin; });
  std::vector<TensorBlock> blocks;
  for (const size_t tensor : order) {
    const int64_t bytes = entries[tensor].bytes;
    for (int64_t offset = 0; offset < bytes; offset += kBlock) {
      blocks.push_back({tensor, offset, std::min(kBlock, bytes - offset)});
    }
  }
  return blocks;
}

uint64_t checksum_of(std::span<const std::byte> block) {
  return XXH3_64bits(block.data(), block.size());
}

std::vector<uint64_t> checksums_of(const Reader& reader, const Entry& entry) {
  Hasher hasher;
  std::vector<std::byte> bytes;
  for (int64_t at = 0; at < entry.bytes; at += kBlock) {
    bytes.resize(static_cast<size_t>(std::min(kBlock, entry.bytes - at)));
    reader.read(entry, at, bytes);
    hasher.add(bytes);
  }
  return hasher.take();
}

struct Hasher::State {
  XXH3_state_t* hash = XXH3_createState();
  State() {
    if (hash == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(hash);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(hash); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;

void Hasher::end_block() {
  sums_.push_back(XXH3_64bits_digest(state_->hash));
  XXH3_64bits_reset(state_->hash);
  filled_ = 0;
}

void Hasher::add(std::span<const std::byte> data) {
  while (!data.empty()) {
    const size_t n = std::min(data.size(), static_cast<size_t>(kBlock - filled_));
    XXH3_64bits_update(state_->hash, data.data(), n);
    filled_ += static_cast<int64_t>(n);
    data = data.subspan(n);
    if (filled_ == kBlock) end_block();
  }
}

std::vector<uint64_t> Hasher::take() {
  if (filled_ > 0) end_block();
  return std::exchange(sums_, {});
}

void CheckedTensor::read_block(int64_t block, std::span<std::byte> out) const {
  reader_->read(*entry_, block * kBlock, out);
  if (checksum_of(out) == sums_[static_cast<size_t>(block)]) return;
  fail(OTR_E_CORRUPT,
       "{}: tensor {}: bytes {} to {} are not those that were written: their checksum differs",
       reader_->path(), in_quotes(entry_->name), block * kBlock,
       block * kBlock + static_cast<int64_t>(out.size()));
}

void CheckedTensor::read(int64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const int64_t block = offset / kBlock, within = offset % kBlock;
    const auto bytes = static_cast<size_t>(std::min(kBlock, entry_->bytes - block * kBlock));
    size_t n = 0;
    if (within == 0 && out.size() >= bytes) {
      n = bytes;
      read_block(block, out.first(n));
    } else {
      if (held_ != block) {
        held_ = -1;
        block_.resize(bytes);
        read_block(block, block_);
        held_ = block;
      }
      n = std::min(out.size(), bytes - static_cast<size_t>(within));
      std::copy_n(block_.data() + within, n, out.data());
    }
    offset += static_cast<int64_t>(n);
    out = out.subspan(n);
  }
}

}  // namespace outrigger::checkpoint

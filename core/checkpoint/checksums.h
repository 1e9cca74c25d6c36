// SPDX-License-Identifier: Apache-2.0
// Checksums of a tensor's bytes: XXH3-64 of each block of 1 MiB, the last one shorter. So a reader
// that needs a part of a tensor checks that part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.h"

namespace outrigger::checkpoint {

inline constexpr int64_t kBlock = int64_t{1} << 20;
[[nodiscard]] constexpr int64_t blocks_of(int64_t bytes) {
  return bytes / kBlock + (bytes % kBlock == 0 ? 0 : 1);
}

// One of a tensor's blocks.
struct TensorBlock {
  size_t tensor = 0;
  int64_t offset = 0, bytes = 0;
};
// Of all tensors, in the order of the file.
[[nodiscard]] std::vector<TensorBlock> blocks_of(const Outline& outline);
[[nodiscard]] uint64_t checksum_of(std::span<const std::byte> block);
// Of a tensor that is in a file.
[[nodiscard]] std::vector<uint64_t> checksums_of(const Reader& reader, const Entry& entry);

// Of bytes that come from front to back.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void add(std::span<const std::byte> data);
  // Those since the start or the last call; the next byte begins a tensor.
  [[nodiscard]] std::vector<uint64_t> take();

 private:
  struct State;
  void end_block();
  std::unique_ptr<State> state_;
  int64_t filled_ = 0;  // of the block
  std::vector<uint64_t> sums_;
};

// A tensor of a file, with its checksums: whatever is read was written by who made them, or the
// read throws OTR_E_CORRUPT. For one thread.
class CheckedTensor {
 public:
  // All outlive it. sums: as many as the entry has blocks.
  CheckedTensor(const Reader& reader, const Entry& entry, std::span<const uint64_t> sums)
      : reader_(&reader), entry_(&entry), sums_(sums) {}
  void read(int64_t offset, std::span<std::byte> out);

 private:
  void read_block(int64_t block, std::span<std::byte> out) const;
  const Reader* reader_;
  const Entry* entry_;
  std::span<const uint64_t> sums_;
  int64_t held_ = -1;             // the block in here
  std::vector<std::byte> block_;  // of which a part was asked for
};

}  // namespace outrigger::checkpoint

// SPDX-License-Identifier: Apache-2.0
// What the mock NCCL's ranks share: memory that a process finds by the communicator's id, with a
// ring of bytes from each rank to each.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugins/nccl/library.h"

namespace outrigger::nccl::mock {

inline constexpr int kMostRanks = 8;

// One writer, one reader.
struct Ring {
  static constexpr uint64_t kBytes = 16384;
  std::atomic<uint64_t> written, read;
  std::array<std::byte, kBytes> bytes;
};
struct Shared {
  std::atomic<int32_t> came;
  std::array<std::array<Ring, kMostRanks>, kMostRanks> rings;  // [from][to]
};

// The memory as mapped here.
class Links {
 public:
  [[nodiscard]] static UniqueId make();
  explicit Links(const UniqueId& id);  // throws std::runtime_error
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  [[nodiscard]] Shared& shared() const { return *shared_; }

 private:
  Shared* shared_ = nullptr;
};

// Bytes on their way, led by their number.
struct Message {
  int peer;
  std::span<std::byte> bytes;
  uint64_t done = 0;  // of the number and the bytes
  [[nodiscard]] uint64_t all() const { return sizeof(uint64_t) + bytes.size(); }
};

// Moves what can be moved of messages, each pair's in order. Returns whether anything moved; false
// in `agrees` once a number differs from that of who receives.
bool move(Shared& shared, int rank, std::vector<Message>& sends, std::vector<Message>& receives,
          bool& agrees);
[[nodiscard]] bool is_done(const std::vector<Message>& messages);

}  // namespace outrigger::nccl::mock

// SPDX-License-Identifier: Apache-2.0
// The parts of all_gather_parts, as one stream of bytes for each rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/comm/copy.h"
#include "core/comm/group.h"

namespace outrigger::comm {

// Of all parts: what ranks compare before any byte moves.
struct PartsSummary {
  uint64_t bytes = 0;
  uint64_t hash = 0;            // of ranks and sizes, in order
  std::vector<size_t> by_rank;  // bytes
  [[nodiscard]] size_t longest() const { return std::ranges::max(by_rank); }
};
// Throws OTR_E_ARGUMENT for a rank that is not in the world.
[[nodiscard]] PartsSummary summarize(std::span<const Part> parts, int32_t world,
                                     std::string_view label);

// A place in the stream of one rank's parts.
class PartsCursor {
 public:
  PartsCursor(std::span<const Part> parts, int32_t rank) : parts_(parts), rank_(rank) {}
  // The next `bytes` of the parts, and what lies on the other side.
  void copy_to(std::byte* other, size_t bytes) {
    advance(bytes, [&](std::byte* mine, size_t n) {
      copy_bytes(other, mine, n);
      other += n;
    });
  }
  void copy_from(const std::byte* other, size_t bytes) {
    advance(bytes, [&](std::byte* mine, size_t n) {
      copy_bytes(mine, other, n);
      other += n;
    });
  }
  void skip(size_t bytes) {
    advance(bytes, [](std::byte*, size_t) {});
  }

 private:
  template <typename Body>
  void advance(size_t bytes, const Body& body) {
    while (bytes > 0) {
      const Part& part = parts_[next_];
      const size_t n = part.rank == rank_ ? std::min(bytes, part.bytes.size() - done_) : 0;
      if (n > 0) body(part.bytes.data() + done_, n);
      done_ += n;
      bytes -= n;
      if (part.rank == rank_ && done_ < part.bytes.size()) return;
      ++next_;
      done_ = 0;
    }
  }
  std::span<const Part> parts_;
  int32_t rank_;
  size_t next_ = 0, done_ = 0;  // a part, and its bytes behind us
};

}  // namespace outrigger::comm

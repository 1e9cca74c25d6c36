// SPDX-License-Identifier: Apache-2.0
// What a rank had at a moment, while its states go on changing. What the engine alone can change is
// copied when it is about to, so that most of it never is, where a step comes later than the last
// block was taken. Two threads: the engine's, and one that takes the blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/contents.h"
#include "core/memory/block.h"

namespace outrigger::engine {

class Snapshot {
 public:
  // Copies what may change without the engine: what the host gives and sees, and all that is not in
  // memory. room: replaced by a larger block where it is too small; outlives this.
  Snapshot(Contents contents, memory::Ledger& ledger, memory::Block& room);

  [[nodiscard]] const Contents& contents() const { return contents_; }
  // The engine's thread: states are about to change. Copies what was not taken; memory that fails
  // is the taker's to hear of.
  void secure() noexcept;
  // True once nothing is left to copy.
  [[nodiscard]] bool is_secure() const { return is_secure_; }

  // The taker's: a block's bytes, in the copy or in scratch. Never waits for the disk while
  // secure() waits for it. Throws OTR_E_OUT_OF_MEMORY where they are lost.
  [[nodiscard]] std::span<const std::byte> take(size_t block, std::vector<std::byte>& scratch);

 private:
  enum class At : uint8_t { states, being_read, being_copied, copy, taken, lost };

  [[nodiscard]] std::span<std::byte> place_of(size_t block) const;
  // False: it is no longer where the states are.
  bool claim(size_t block, At as);
  void copy(size_t block, Contents::Scratch& scratch);

  const Contents contents_;
  std::byte* image_;  // of the file
  std::vector<std::atomic<At>> at_;
  std::atomic<bool> is_secure_{false};
};

}  // namespace outrigger::engine

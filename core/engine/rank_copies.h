// SPDX-License-Identifier: Apache-2.0
// What ranks had between two windows, in this process's memory: this rank's states, and copies of
// other ranks' from which a lost one comes back. Outlives engines. For one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "core/engine/contents.h"
#include "core/memory/block.h"
#include "core/memory/ledger.h"

namespace outrigger::engine {

class RankCopies {
 public:
  // Other ranks' that one process keeps.
  static constexpr int32_t kMostReplicas = 7;
  // That a rank gives to a restore.
  static constexpr size_t kMostGiven = 4;

  // Which moment it is of; id 0: none, it is empty.
  struct Moment {
    uint64_t id = 0;
    int64_t micro_steps = 0;
    int32_t world = 0;
  };
  // One rank's: every tensor of its Contents, as they lie in a file without its header.
  struct Copy {
    int32_t rank = -1;
    std::string text;  // its Text
    memory::Block room;
    int64_t bytes = 0;
    [[nodiscard]] std::span<std::byte> data() const {
      return {room.data(), static_cast<size_t>(bytes)};
    }
  };
  // What there is to know of a copy, as JSON.
  struct Text {
    std::string layout;    // of formats, names and places: where it is the same, bytes can be taken
    std::string progress;  // JSON
    std::vector<std::string> parts;  // the host's, the last of its tensors
    std::vector<int64_t> begins, ends;
  };
  [[nodiscard]] static std::string to_json(const Text& text);
  [[nodiscard]] static Text parse(const std::string& json);
  [[nodiscard]] static std::string layout_of(const Contents& contents);
  [[nodiscard]] static std::string layout_of(const std::vector<std::string>& lines);
  // Of a moment; from checkpoint::new_id().
  [[nodiscard]] static uint64_t moment_id(const std::string& new_id);

  [[nodiscard]] const Moment& moment() const { return moment_; }
  [[nodiscard]] const std::list<Copy>& copies() const { return copies_; }
  [[nodiscard]] const Copy* find(int32_t rank) const;
  [[nodiscard]] int64_t bytes() const;  // that it takes
  // The rank whose process this is; -1: it is empty.
  [[nodiscard]] int32_t own_rank() const { return copies_.empty() ? -1 : copies_.front().rank; }
  // Throws OTR_E_STATE where it is empty.
  void require_filled() const;
  // A part of own_rank's host. Throws OTR_E_NOT_FOUND, and as require_filled.
  [[nodiscard]] std::span<const std::byte> part(const std::string& name) const;

  // Empties it; memory stays for what comes next.
  void clear();
  // A copy to be filled, the first for own_rank. Throws OTR_E_OUT_OF_MEMORY.
  Copy& add(int32_t rank, std::string text, int64_t bytes);
  // All of it is there.
  void seal(const Moment& moment) { moment_ = moment; }

 private:
  Moment moment_;
  memory::Ledger ledger_;
  std::list<Copy> copies_;
  std::vector<memory::Block> spare_;
};

}  // namespace outrigger::engine

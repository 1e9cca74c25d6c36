// SPDX-License-Identifier: Apache-2.0
// A rank's file of a checkpoint: written from where the states are, or from a copy of them, while
// they change.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/checkpoint/files.h"
#include "core/checkpoint/safetensors.h"
#include "core/engine/contents.h"
#include "core/memory/block.h"

namespace outrigger::engine {

// What the index is to say of it.
struct RankFile {
  std::vector<checkpoint::IndexRow> rows;  // their checksums are counted from 0
  std::vector<uint64_t> checksums;
  int64_t bytes = 0;
};

// Called now and then with the bytes that are written.
using Tick = std::function<void(int64_t)>;

// ledger: charged for what is on its way to the disk.
[[nodiscard]] RankFile write_file(checkpoint::Folder& folder, const Contents& contents,
                                  int64_t rank, memory::Ledger& ledger, const Tick& tick);

// A copy of what a rank writes, in the order of the file, so that nothing more is copied on its way
// to the disk.
class Snapshot {
 public:
  // Memory for a copy of so many bytes of states, with some of the host's.
  [[nodiscard]] static int64_t room_for(int64_t states);

  // room: replaced by a larger block where it is too small; outlives this.
  Snapshot(const Contents& contents, int64_t rank, memory::Ledger& ledger, memory::Block& room);

  [[nodiscard]] int64_t file_bytes() const { return outline_.file_bytes; }
  [[nodiscard]] RankFile write(checkpoint::Folder& folder, const Tick& tick) const;

 private:
  const int64_t rank_;
  const checkpoint::Outline outline_;
  const std::vector<checkpoint::IndexRow> rows_;
  std::byte* image_;  // of the file, at the beginning of a page
};

}  // namespace outrigger::engine

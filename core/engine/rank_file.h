// SPDX-License-Identifier: Apache-2.0
// A rank's file of a checkpoint: written from where the states are, or while they change.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/checkpoint/files.h"
#include "core/checkpoint/safetensors.h"
#include "core/engine/contents.h"
#include "core/engine/snapshot.h"

namespace outrigger::engine {

// What the index is to say of it.
struct RankFile {
  std::vector<checkpoint::IndexRow> rows;  // their checksums are counted from 0
  std::vector<uint64_t> checksums;
  int64_t bytes = 0;
};

// Called now and then with the bytes that are written.
using Tick = std::function<void(int64_t)>;

// ledger: charged for what is on its way to the disk. The first by the engine's workers, the second
// on this thread alone.
[[nodiscard]] RankFile write_file(checkpoint::Folder& folder, const Contents& contents,
                                  int64_t rank, memory::Ledger& ledger, const Tick& tick);
[[nodiscard]] RankFile write_file(checkpoint::Folder& folder, Snapshot& snapshot, int64_t rank,
                                  memory::Ledger& ledger, const Tick& tick);

}  // namespace outrigger::engine

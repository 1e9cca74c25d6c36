// SPDX-License-Identifier: Apache-2.0
// A device's memory that an engine can do without between two steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/comm/communicator.h"
#include "core/memory/block.h"
#include "core/memory/ledger.h"
#include "outrigger.h"

namespace outrigger::engine {

inline constexpr int32_t kAllOfIt =
    OTR_STATES_PUBLISHED | OTR_STATES_MASTER | OTR_STATES_MOMENTS | OTR_STATES_GRADIENTS;

struct Movable {
  int32_t kind;  // OTR_STATES_
  memory::Purpose purpose;
  int64_t bytes;
  bool is_kept;  // else it holds nothing between two windows
  std::function<std::byte*()> data;
  std::function<void()> drop, restore;  // see memory::Block
};

// Adds a block; nothing if it has no memory. It outlives the list.
inline void add_movable(std::vector<Movable>& all, int32_t kind, memory::Purpose purpose,
                        memory::Block& block, bool is_kept) {
  if (!block) return;
  all.push_back({kind, purpose, block.bytes(), is_kept, [&block] { return block.data(); },
                 [&block] { block.drop(); }, [&block] { block.restore(); }});
}

// The same of a rank's block of a window, with what the ledger has of it.
inline void add_movable(std::vector<Movable>& all, int32_t kind, memory::Purpose purpose,
                        comm::Window& window, int32_t rank, memory::Ledger& ledger,
                        memory::Charge& charge, bool is_kept) {
  const auto bytes = static_cast<int64_t>(window.bytes());
  if (bytes == 0) return;
  all.push_back({kind, purpose, bytes, is_kept, [&window, rank] { return window.block(rank); },
                 [&] {
                   window.drop();
                   charge = {};
                 },
                 [&window, &ledger, &charge, purpose, bytes] {
                   window.restore();
                   charge = memory::Charge(ledger, purpose, bytes, memory::Space::device);
                 }});
}

}  // namespace outrigger::engine

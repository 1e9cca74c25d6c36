// SPDX-License-Identifier: Apache-2.0
#include "core/engine/snapshot.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/memory/copy.h"

namespace outrigger::engine {

Snapshot::Snapshot(Contents contents, memory::Ledger& ledger, memory::Block& room)
    : contents_(std::move(contents)), at_(contents_.blocks().size()) {
  const int64_t needed = contents_.outline().file_bytes;
  if (room.bytes() < needed) {
    room = {};
    room = memory::Block(ledger, memory::Purpose::snapshots, needed);
  }
  image_ = room.data();
  const bool all = !contents_.is_in_memory();
  contents_.each(
      [&](size_t block, Contents::Scratch& scratch) {
        if (all || contents_.is_seen_outside(block)) copy(block, scratch);
      },
      [] {});
}

std::span<std::byte> Snapshot::place_of(size_t block) const {
  const checkpoint::TensorBlock& b = contents_.blocks()[block];
  return {image_ + contents_.outline().place_of(b.tensor) + b.offset, static_cast<size_t>(b.bytes)};
}

bool Snapshot::claim(size_t block, At as) {
  At expected = At::states;
  return at_[block].compare_exchange_strong(expected, as);
}

void Snapshot::copy(size_t block, Contents::Scratch& scratch) {
  if (!claim(block, At::being_copied)) return;
  try {
    contents_.read(block, scratch, [&](std::span<const std::byte> bytes) {
      memory::copy_past_caches(place_of(block).data(), bytes);
    });
  } catch (...) {
    at_[block] = At::lost;
    throw;
  }
  at_[block] = At::copy;
}

void Snapshot::secure() noexcept {
  if (is_secure_) return;
  try {
    contents_.each([&](size_t block, Contents::Scratch& scratch) { copy(block, scratch); }, [] {});
  } catch (...) {
    for (size_t block = 0; block < at_.size(); ++block) claim(block, At::lost);
  }
  // The taker copies one block at a time.
  for (const std::atomic<At>& at : at_) {
    while (at == At::being_read) std::this_thread::yield();
  }
  is_secure_ = true;
}

std::span<const std::byte> Snapshot::take(size_t block, std::vector<std::byte>& scratch) {
  if (claim(block, At::being_read)) {
    try {
      Contents::Scratch gathered;
      contents_.read(block, gathered, [&](std::span<const std::byte> bytes) {
        scratch.assign(bytes.begin(), bytes.end());
      });
    } catch (...) {
      at_[block] = At::lost;
      throw;
    }
    at_[block] = At::taken;
    return scratch;
  }
  while (at_[block] == At::being_copied) std::this_thread::yield();
  if (at_[block] == At::lost) {
    fail(OTR_E_OUT_OF_MEMORY, "no memory for the copy of {} bytes of states",
         contents_.blocks()[block].bytes);
  }
  return place_of(block);
}

}  // namespace outrigger::engine

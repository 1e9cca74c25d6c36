// SPDX-License-Identifier: Apache-2.0
// What of a training this rank keeps, run by run: what a checkpoint, a snapshot or a copy elsewhere
// lists and reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/committed.h"

namespace outrigger::engine {

// The states, and what a frozen parameter has instead.
enum class Kept : uint8_t {
  master = static_cast<uint8_t>(State::master),
  exp_avg = static_cast<uint8_t>(State::exp_avg),
  exp_avg_sq = static_cast<uint8_t>(State::exp_avg_sq),
  published
};

// Elements [first, first + count) of a parameter.
struct Section {
  int64_t parameter = 0, first = 0, count = 0;
  Kept kept = Kept::master;
  kernels::Format format = kernels::Format::float32;
  int64_t bytes = 0;  // as stored; of a split master its upper halves, then its lower ones
};

// In shard order; the same from commit to the end. Over all ranks of a training whose states are
// sharded, each element of each state is in one section: of ranks that keep the same ones, the
// first has sections. Frozen parameters have published values
// only, which every rank has: they are dealt over the ranks.
[[nodiscard]] std::vector<Section> sections_of(const Committed& committed);

enum class Encoding : uint8_t { stored, float32 };
// out: the section's bytes, or four for each element. With no window open; not collective.
void read_section(Declared& declared, Committed& committed, const Section& section,
                  Encoding encoding, std::span<std::byte> out);

}  // namespace outrigger::engine

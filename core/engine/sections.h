// SPDX-License-Identifier: Apache-2.0
// What of a training this rank keeps, run by run: what a checkpoint, a snapshot or a copy elsewhere
// lists and reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/checkpoint/manifest.h"
#include "core/checkpoint/planes.h"
#include "core/engine/committed.h"

namespace outrigger::engine {

using checkpoint::Kept;  // the states, and what a frozen parameter has instead
static_assert(static_cast<int>(Kept::exp_avg_sq) == static_cast<int>(State::exp_avg_sq));

// Elements [first, first + count) of a parameter.
struct Section {
  int64_t parameter = 0, first = 0, count = 0;
  Kept kept = Kept::master;
  kernels::Format format = kernels::Format::float32;
  int64_t bytes = 0;  // as stored: of a split master the lower halves, then the upper ones; of
                      // blocks the codes in whole leaves, then the scales
};

// In shard order; the same from commit to the end. Over all ranks of a training whose states are
// sharded, each element of each state is in one section: of ranks that keep the same ones, the
// first has sections. Frozen parameters have published values
// only, which every rank has: they are dealt over the ranks.
[[nodiscard]] std::vector<Section> sections_of(const Committed& committed);
// All that this rank keeps, whoever keeps the same.
[[nodiscard]] std::vector<Section> sections_here(const Committed& committed);

// Its values in host memory, for the time of the call: where they are, or copied from a device.
// section: one of them, or a part that begins and ends at a leaf or with it. With no window open;
// not collective.
void visit_section(Declared& declared, Committed& committed, const Section& section,
                   const std::function<void(const checkpoint::Run&)>& body);

enum class Encoding : uint8_t { stored, float32 };
// out: the section's bytes, or four for each element. With no window open; not collective.
void read_section(Declared& declared, Committed& committed, const Section& section,
                  Encoding encoding, std::span<std::byte> out);

}  // namespace outrigger::engine

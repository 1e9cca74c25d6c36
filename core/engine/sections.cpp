// SPDX-License-Identifier: Apache-2.0
#include "core/engine/sections.h"

#include <algorithm>

#include "core/engine/transfer.h"
#include "kernels/composed.h"

namespace outrigger::engine {

using kernels::Format;
using memory::Block;

namespace {

State state_of(Kept kept) { return static_cast<State>(kept); }

}  // namespace

std::vector<Section> sections_of(const Committed& committed) {
  std::vector<Section> sections;
  if (!committed.counts) return sections;
  const StateStore& store = *committed.states;
  for (const layout::Piece& piece : committed.pieces) {
    for (const Kept kept : {Kept::master, Kept::exp_avg, Kept::exp_avg_sq}) {
      const State state = state_of(kept);
      if (!store.keeps(state, piece.parameter)) continue;
      const Format format = store.format(state);
      const bool split = format == Format::split;
      const int64_t upper = split ? bytes_of(piece.count, committed.published.format()) : 0;
      sections.push_back({piece.parameter, piece.first, piece.count, kept, format,
                          upper + bytes_of(piece.count, format)});
    }
  }
  const Format format = committed.published.format();
  int32_t owner = 0;
  for (int64_t id = 0; id < committed.model.size(); ++id) {
    const layout::Parameter& p = committed.model.at(id);
    if (p.root != id || p.trainable || p.count == 0) continue;
    if (owner == committed.control.slice()) {
      sections.push_back({id, 0, p.count, Kept::published, format, bytes_of(p.count, format)});
    }
    owner = (owner + 1) % committed.control.slices();
  }
  return sections;
}

void read_section(Declared& declared, Committed& committed, const Section& section,
                  Encoding encoding, std::span<std::byte> out) {
  const auto plain = static_cast<size_t>(section.count) * sizeof(float);
  const size_t needed = encoding == Encoding::stored ? static_cast<size_t>(section.bytes) : plain;
  if (out.size() != needed) {
    fail(OTR_E_BUFFER_SIZE, "there is room for {} bytes of a section of {}", out.size(), needed);
  }
  memory::Ledger& ledger = declared.ledger;
  device::Device& front = *committed.devices.front;
  const int64_t bytes = bytes_of(section.count, section.format);
  Block copy, upper_copy;
  if (section.kept == Kept::published) {
    const std::byte* data =
        on_host(ledger, front, committed.published.whole(section.parameter), bytes, copy);
    if (encoding == Encoding::stored) {
      std::copy_n(data, needed, out.data());
    } else {
      kernels::convert(out.data(), Format::float32, data, section.format, section.count);
    }
    return;
  }
  const layout::Piece piece = *committed.local_piece(section.parameter);
  const Lease lease(*committed.states, piece, kAllStates, kNoStates);
  const std::byte* data = on_host(ledger, *committed.devices.back,
                                  lease.states().of(state_of(section.kept)), bytes, copy);
  const int64_t upper_bytes = section.bytes - bytes;  // of a split master
  const std::byte* upper =
      on_host(ledger, front, committed.published.at(piece), upper_bytes, upper_copy);
  if (encoding == Encoding::stored) {
    std::copy_n(upper, upper_bytes, out.data());
    std::copy_n(data, bytes, out.data() + upper_bytes);
  } else if (kernels::is_composed(section.format)) {
    kernels::read_composed(reinterpret_cast<float*>(out.data()), data, section.format,
                           reinterpret_cast<const uint16_t*>(upper), section.count);
  } else {
    kernels::convert(out.data(), Format::float32, data, section.format, section.count);
  }
}

}  // namespace outrigger::engine

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
  if (!committed.counts) return {};
  std::vector<Section> sections = sections_here(committed);
  int32_t owner = 0;
  std::erase_if(sections, [&](const Section& s) {
    if (s.kept != Kept::published) return false;
    const bool others = owner != committed.control.slice();
    owner = (owner + 1) % committed.control.slices();
    return others;
  });
  return sections;
}

std::vector<Section> sections_here(const Committed& committed) {
  std::vector<Section> sections;
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
  for (int64_t id = 0; id < committed.model.size(); ++id) {
    const layout::Parameter& p = committed.model.at(id);
    if (p.root != id || p.trainable || p.count == 0) continue;
    sections.push_back({id, 0, p.count, Kept::published, format, bytes_of(p.count, format)});
  }
  return sections;
}

void visit_section(Declared& declared, Committed& committed, const Section& section,
                   const std::function<void(const checkpoint::Run&)>& body) {
  memory::Ledger& ledger = declared.ledger;
  device::Device& published = committed.published.device();
  const int64_t bytes = kernels::plain_bytes_of(section.count, section.format);
  Block copy, beside_copy;
  if (section.kept == Kept::published) {
    const std::byte* const whole = committed.published.whole(section.parameter);
    const std::byte* const data =
        on_host(ledger, published, whole + bytes_of(section.first, section.format), bytes, copy);
    body({data, nullptr, section.count});
    return;
  }
  const layout::Piece own = *committed.local_piece(section.parameter);
  const layout::Piece piece = layout::part_of(own, section.first - own.first, section.count);
  const State state = state_of(section.kept);
  const StateSet read{
      {state == State::master, state == State::exp_avg, state == State::exp_avg_sq}};
  const Lease lease(*committed.states, piece, read, kNoStates);
  device::Device& back = committed.back_of(section.parameter);
  const std::byte* const data = on_host(ledger, back, lease.states().of(state), bytes, copy);
  const std::byte* beside = nullptr;
  if (kernels::is_composed(section.format)) {
    const bool split = section.format == Format::split;
    beside = on_host(ledger, split ? published : back,
                     split ? committed.published.at(piece)
                           : reinterpret_cast<std::byte*>(lease.states().scales_of(state)),
                     kernels::beside_bytes_of(section.count, section.format), beside_copy);
  }
  body({data, beside, section.count});
}

void read_section(Declared& declared, Committed& committed, const Section& section,
                  Encoding encoding, std::span<std::byte> out) {
  const auto plain = static_cast<size_t>(section.count) * sizeof(float);
  const size_t needed = encoding == Encoding::stored ? static_cast<size_t>(section.bytes) : plain;
  if (out.size() != needed) {
    fail(OTR_E_BUFFER_SIZE, "there is room for {} bytes of a section of {}", out.size(), needed);
  }
  visit_section(declared, committed, section, [&](const checkpoint::Run& run) {
    if (encoding == Encoding::stored) {
      const int64_t bytes = kernels::plain_bytes_of(section.count, section.format);
      if (run.beside != nullptr) std::copy_n(run.beside, section.bytes - bytes, out.data() + bytes);
      std::copy_n(run.data, bytes, out.data());
    } else {
      kernels::read_float32(reinterpret_cast<float*>(out.data()), run.data, run.beside,
                            section.format, section.count);
    }
  });
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
#include "core/engine/own_pieces.h"

#include <cstring>

namespace outrigger::engine {

using kernels::Format;

Pieces own_pieces(const Published& published, StateStore& states, const Plan& plan) {
  if (published.is_offloaded()) {
    return {[](const auto&) { return nullptr; },
            [&published](const layout::Piece& part, std::byte* to) {
              std::memcpy(to, published.at(part),
                          static_cast<size_t>(bytes_of(part.count, published.format())));
              return true;
            }};
  }
  Pieces pieces{[&published](const layout::Piece& piece) { return published.at(piece); }};
  const Format master = states.format(State::master), format = published.format();
  // What is published is the master, rounded to nearest.
  const bool same = master == Format::float32 || master == format;
  if (!plan.offloaded() || !published.is_cut_as_states() || !states.is_in_memory() || !same) {
    return pieces;
  }
  pieces.on_host = [&states, &plan, master, format](const layout::Piece& part, std::byte* to) {
    if (plan.side_of(part.parameter).back != Plan::Space::host) return false;
    const Lease lease(states, part, kMaster, kNoStates);
    kernels::convert(to, format, lease.states().master, master, part.count);
    return true;
  };
  return pieces;
}

}  // namespace outrigger::engine

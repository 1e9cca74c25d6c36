// SPDX-License-Identifier: Apache-2.0
// Parameters made whole from their owners' pieces: in operations of a few MiB, at once or ahead.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/comm/exchange.h"
#include "core/device/device.h"
#include "core/layout/layout.h"

namespace outrigger::engine {

// A parameter that its owners' pieces are to make whole.
struct Whole {
  std::vector<layout::Layout::Owned> owners;
  std::byte* data;
};

// Where a piece of this rank's lies.
using PieceAt = std::function<const std::byte*(const layout::Piece&)>;

// All of them, of `element_bytes` an element, on `device`, as are pieces. done: how many operations
// are over; called again after an interrupt, it goes on with the next. Collective.
void gather_pieces(comm::Group& group, device::Device& device, std::span<const Whole> wholes,
                   size_t element_bytes, const PieceAt& piece_at, std::string_view label,
                   size_t& done);

// Begins the same in a sequence that gathers nothing else. The ticket is the last operation's.
class PiecesAhead {
 public:
  PiecesAhead(device::Device& device, int32_t slice) : device_(&device), slice_(slice) {}
  comm::Exchange::Ticket begin(comm::Exchange& exchange, std::span<const Whole> wholes,
                               size_t element_bytes, const PieceAt& piece_at,
                               std::string_view label);

 private:
  device::Device* device_;
  int32_t slice_;                  // this rank's
  std::vector<std::byte> bounce_;  // for a device's memory; the sequence's
};

}  // namespace outrigger::engine

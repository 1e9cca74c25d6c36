// SPDX-License-Identifier: Apache-2.0
// Parameters made whole from their owners' pieces: in operations of some MiB, at once or ahead.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/comm/exchange.h"
#include "core/device/device.h"
#include "core/layout/layout.h"
#include "core/memory/block.h"
#include "core/memory/pinned.h"

namespace outrigger::engine {

// A parameter that its owners' pieces are to make whole.
struct Whole {
  std::vector<layout::Layout::Owned> owners;
  std::byte* data;
};

// Where a piece of this rank's lies on the device; null: on the host only. on_host, where the host
// may have its elements, puts a part of them there, so that nothing comes down, or answers that it
// has none. Any thread.
struct Pieces {
  std::function<const std::byte*(const layout::Piece&)> at;
  std::function<bool(const layout::Piece& part, std::byte* to)> on_host = nullptr;
};

// In which form they go between ranks: as they are, or as 8-bit integers (kernels::to_integers),
// which the host makes and reads, the owner its own as well. A piece begins with a leaf of its
// parameter, so that values do not depend on how ranks cut it.
struct Elements {
  kernels::Format format;
  device::Device* integers_by = nullptr;  // the host; null: they go as they are
  [[nodiscard]] size_t size() const { return kernels::size_of(format); }
  [[nodiscard]] int64_t bytes_sent(int64_t count) const {
    return kernels::bytes_of(count, integers_by != nullptr ? kernels::Format::block8 : format);
  }
};

// Page-locked host memory by which a device's pieces go, and integers, a place in it for each
// operation in turn: one fills while others leave.
class Bounce {
 public:
  static constexpr size_t kPlaces = 8, kPlaceBytes = size_t{1} << 20;
  static constexpr int64_t kBytes = kPlaces * kPlaceBytes;

  // bytes: kBytes, or 0 where nothing is gathered, or on the host.
  Bounce(device::Device& device, memory::Ledger& ledger, config::Pin pin, int64_t bytes);
  // For what is neither planned nor often: one place, which comes and goes.
  explicit Bounce(device::Device& device)
      : device_(device), unplanned_(device.is_host() ? 0 : kPlaceBytes) {}
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;
  ~Bounce();

  // What an operation gathers: an interrupt between two of them loses nothing.
  [[nodiscard]] size_t at_a_time() {
    constexpr size_t kDirectly = size_t{4} << 20;
    return place(0) == nullptr ? kDirectly : kPlaceBytes;
  }
  // Null: pieces go directly.
  [[nodiscard]] std::byte* place(size_t operation) {
    if (!unplanned_.empty()) return unplanned_.data();
    return memory_ ? memory_.data() + operation % kPlaces * kPlaceBytes : nullptr;
  }
  void await(size_t operation) { device_.synchronize(std::exchange(gone(operation), {})); }
  // What is in the place leaves until this event.
  void leaves(size_t operation, device::Event until) { gone(operation) = std::move(until); }

 private:
  [[nodiscard]] device::Event& gone(size_t operation) {
    return gone_.at(unplanned_.empty() ? operation % kPlaces : 0);
  }
  device::Device& device_;
  std::vector<std::byte> unplanned_;
  memory::Block memory_;
  memory::Pinned pinned_;
  std::array<device::Event, kPlaces> gone_;
};

// All of them on `device`, as are pieces: there once the device's stream for uploads is, in whose
// order pieces are read. done: how many operations are over; called again after an interrupt, it
// goes on with the next. Collective.
void gather_pieces(comm::Group& group, device::Device& device, Bounce& bounce,
                   std::span<const Whole> wholes, const Elements& elements, const Pieces& mine,
                   std::string_view label, size_t& done);

// Begins the same in a sequence that gathers nothing else. The ticket is the last operation's;
// then: called when that has run.
class PiecesAhead {
 public:
  // bounce: used in the sequence only.
  PiecesAhead(device::Device& device, Bounce& bounce, int32_t slice)
      : device_(&device), bounce_(&bounce), slice_(slice) {}
  comm::Exchange::Ticket begin(comm::Exchange& exchange, std::span<const Whole> wholes,
                               const Elements& elements, const Pieces& mine, std::string_view label,
                               std::function<void()> then = {});

 private:
  device::Device* device_;
  Bounce* bounce_;
  int32_t slice_;          // this rank's
  size_t operations_ = 0;  // begun so far
};

}  // namespace outrigger::engine

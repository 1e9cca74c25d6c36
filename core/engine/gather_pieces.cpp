// SPDX-License-Identifier: Apache-2.0
#include "core/engine/gather_pieces.h"

#include <algorithm>
#include <memory>
#include <string>

#include "core/base/error.h"

namespace outrigger::engine {
namespace {

// A piece on its way to everybody.
struct Transfer {
  int32_t rank;
  bool is_mine;
  std::byte* to;
  const std::byte* from;  // of this rank's, if it is on the device
  layout::Piece piece;
};

std::vector<Transfer> transfers_of(std::span<const Whole> wholes, int32_t slice,
                                   size_t element_bytes, const Pieces& mine) {
  std::vector<Transfer> transfers;
  for (const Whole& whole : wholes) {
    for (const auto& [owner, piece] : whole.owners) {
      const bool is_mine = owner == slice;
      transfers.push_back({owner, is_mine,
                           whole.data + static_cast<size_t>(piece.first) * element_bytes,
                           is_mine ? mine.at(piece) : nullptr, piece});
    }
  }
  return transfers;
}

// What is gathered, and how.
struct Job {
  device::Device* device;
  Bounce* bounce;
  size_t element_bytes;
  Pieces mine;
};

// What one operation gathers, its number in a sequence.
class Batch {
 public:
  // Takes the next off the list.
  Batch(std::span<Transfer>& left, const Job& job, size_t operation)
      : job_(job), operation_(operation) {
    std::byte* const place = job.bounce->place(operation);
    const size_t most = job.bounce->at_a_time();
    for (size_t bytes = 0; !left.empty() && bytes < most;) {
      Transfer& first = left.front();
      const size_t room = (most - bytes) / job.element_bytes;
      const int64_t count = std::min(first.piece.count, static_cast<int64_t>(room));
      Transfer& part = transfers_.emplace_back(first);
      part.piece = layout::part_of(first.piece, 0, count);
      const size_t n = static_cast<size_t>(count) * job.element_bytes;
      parts_.push_back({first.rank, {place == nullptr ? first.to : place + bytes, n}});
      bytes += n;
      first.to += n;
      if (first.from != nullptr) first.from += n;
      first.piece = layout::part_of(first.piece, count, first.piece.count - count);
      if (first.piece.count == 0) left = left.subspan(1);
    }
  }

  [[nodiscard]] const std::vector<comm::Part>& parts() const { return parts_; }
  // This rank's, to where the operation takes them from.
  void give() const {
    device::Device& device = *job_.device;
    job_.bounce->await(operation_);
    const device::Stream stream = device.download_stream();
    bool comes_down = false;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Transfer& part = transfers_[i];
      std::byte* const to = parts_[i].bytes.data();
      if (!part.is_mine) continue;
      if (job_.mine.on_host && job_.mine.on_host(part.piece, to)) continue;
      if (!comes_down) device.wait(stream, device.record(device.own_stream()));
      comes_down = true;
      device.download(to, part.from, parts_[i].bytes.size(), stream);
    }
    if (comes_down) device.synchronize(device.record(stream));
  }
  // The others' from where the operation has put them, this rank's from the device itself.
  void take() const {
    device::Device& device = *job_.device;
    if (device.is_host()) return;
    const device::Stream stream = device.upload_stream();
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Transfer& part = transfers_[i];
      const std::span<const std::byte> bytes = parts_[i].bytes;
      if (part.from == nullptr) {
        device.upload(part.to, bytes.data(), bytes.size(), stream);
      } else if (part.from != part.to) {
        device.copy(part.to, part.from, bytes.size(), stream);
      }
    }
    job_.bounce->leaves(operation_, device.record(stream));
  }

 private:
  Job job_;
  size_t operation_;
  std::vector<Transfer> transfers_;
  std::vector<comm::Part> parts_;
};

}  // namespace

Bounce::Bounce(device::Device& device, memory::Ledger& ledger, config::Pin pin, int64_t bytes)
    : device_(device), memory_(ledger, memory::Purpose::buckets, bytes) {
  if (memory_) {
    pinned_ = memory::Pinned(device, ledger, {memory_.data(), static_cast<size_t>(bytes)}, pin);
  }
}

Bounce::~Bounce() {
  for (const device::Event& event : gone_) {
    try {
      device_.synchronize(event);
    } catch (const Error&) {  // a device that is lost reads nothing
    }
  }
}

void gather_pieces(comm::Group& group, device::Device& device, Bounce& bounce,
                   std::span<const Whole> wholes, size_t element_bytes, const Pieces& mine,
                   std::string_view label, size_t& done) {
  auto transfers = transfers_of(wholes, group.slice(), element_bytes, mine);
  const Job job{&device, &bounce, element_bytes, mine};
  std::span<Transfer> left(transfers);
  for (size_t operation = 0; !left.empty(); ++operation) {
    const Batch batch(left, job, operation);
    if (operation < done) continue;
    batch.give();
    group.all_gather_parts(batch.parts(), label);
    batch.take();
    ++done;
  }
}

comm::Exchange::Ticket PiecesAhead::begin(comm::Exchange& exchange, std::span<const Whole> wholes,
                                          size_t element_bytes, const Pieces& mine,
                                          std::string_view label) {
  auto transfers = transfers_of(wholes, slice_, element_bytes, mine);
  const Job job{device_, bounce_, element_bytes, mine};
  comm::Exchange::Ticket last = 0;
  for (std::span<Transfer> left(transfers); !left.empty();) {
    const auto batch = std::make_shared<const Batch>(left, job, operations_++);
    last =
        exchange.begin(comm::PartsGather{batch->parts(), std::string(label),
                                         [batch] { batch->give(); }, [batch] { batch->take(); }});
  }
  return last;
}

}  // namespace outrigger::engine

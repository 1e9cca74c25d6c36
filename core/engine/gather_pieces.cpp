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
  std::byte* to;
  const std::byte* from;  // of this rank's
  size_t bytes;
};

std::vector<Transfer> transfers_of(std::span<const Whole> wholes, int32_t slice,
                                   size_t element_bytes, const PieceAt& piece_at) {
  std::vector<Transfer> transfers;
  for (const Whole& whole : wholes) {
    for (const auto& [owner, piece] : whole.owners) {
      transfers.push_back({owner, whole.data + static_cast<size_t>(piece.first) * element_bytes,
                           owner == slice ? piece_at(piece) : nullptr,
                           static_cast<size_t>(piece.count) * element_bytes});
    }
  }
  return transfers;
}

// What one operation gathers, its number in a sequence.
class Batch {
 public:
  // Takes the next off the list.
  Batch(std::span<Transfer>& left, device::Device& device, Bounce& bounce, size_t operation)
      : device_(&device), bounce_(&bounce), operation_(operation) {
    std::byte* const place = bounce.place(operation);
    for (size_t bytes = 0; !left.empty() && bytes < Bounce::kAtATime;) {
      Transfer& first = left.front();
      transfers_.push_back(first);
      const size_t n = transfers_.back().bytes = std::min(first.bytes, Bounce::kAtATime - bytes);
      parts_.push_back({first.rank, {place == nullptr ? first.to : place + bytes, n}});
      bytes += n;
      first.to += n;
      first.bytes -= n;
      if (first.from != nullptr) first.from += n;
      if (first.bytes == 0) left = left.subspan(1);
    }
  }

  [[nodiscard]] const std::vector<comm::Part>& parts() const { return parts_; }
  // This rank's, to where the operation takes them from.
  void give() const {
    bounce_->await(operation_);
    const device::Stream stream = device_->download_stream();
    device_->wait(stream, device_->record(device_->own_stream()));
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Transfer& mine = transfers_[i];
      if (mine.from != nullptr) {
        device_->download(parts_[i].bytes.data(), mine.from, mine.bytes, stream);
      }
    }
    device_->synchronize(device_->record(stream));
  }
  // All of them, from where it has put them, on the stream for uploads.
  void take() const {
    if (device_->is_host()) return;
    const device::Stream stream = device_->upload_stream();
    for (size_t i = 0; i < parts_.size(); ++i) {
      device_->upload(transfers_[i].to, parts_[i].bytes.data(), transfers_[i].bytes, stream);
    }
    bounce_->leaves(operation_, device_->record(stream));
  }

 private:
  device::Device* device_;
  Bounce* bounce_;
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
                   std::span<const Whole> wholes, size_t element_bytes, const PieceAt& piece_at,
                   std::string_view label, size_t& done) {
  auto transfers = transfers_of(wholes, group.slice(), element_bytes, piece_at);
  std::span<Transfer> left(transfers);
  for (size_t operation = 0; !left.empty(); ++operation) {
    const Batch batch(left, device, bounce, operation);
    if (operation < done) continue;
    batch.give();
    group.all_gather_parts(batch.parts(), label);
    batch.take();
    ++done;
  }
}

comm::Exchange::Ticket PiecesAhead::begin(comm::Exchange& exchange, std::span<const Whole> wholes,
                                          size_t element_bytes, const PieceAt& piece_at,
                                          std::string_view label) {
  auto transfers = transfers_of(wholes, slice_, element_bytes, piece_at);
  comm::Exchange::Ticket last = 0;
  for (std::span<Transfer> left(transfers); !left.empty();) {
    const auto batch = std::make_shared<const Batch>(left, *device_, *bounce_, operations_++);
    last =
        exchange.begin(comm::PartsGather{batch->parts(), std::string(label),
                                         [batch] { batch->give(); }, [batch] { batch->take(); }});
  }
  return last;
}

}  // namespace outrigger::engine

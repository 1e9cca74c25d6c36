// SPDX-License-Identifier: Apache-2.0
#include "core/engine/gather_pieces.h"

#include <algorithm>
#include <memory>
#include <string>

namespace outrigger::engine {
namespace {

// So much is gathered at a time: an interrupt between two of them loses nothing, and a device's
// memory goes by way of host memory of that size.
constexpr size_t kAtATime = size_t{4} << 20;

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

// What one operation gathers.
class Batch {
 public:
  // Takes the next off the list. bounce: of kAtATime bytes where the device is not the host.
  Batch(std::span<Transfer>& left, device::Device& device, std::byte* bounce) : device_(&device) {
    for (size_t bytes = 0; !left.empty() && bytes < kAtATime;) {
      Transfer& first = left.front();
      transfers_.push_back(first);
      const size_t n = transfers_.back().bytes = std::min(first.bytes, kAtATime - bytes);
      parts_.push_back({first.rank, {device.is_host() ? first.to : bounce + bytes, n}});
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
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Transfer& mine = transfers_[i];
      if (mine.from != nullptr) {
        device_->download_now(parts_[i].bytes.data(), mine.from, mine.bytes);
      }
    }
  }
  // All of them, from where it has put them.
  void take() const {
    if (device_->is_host()) return;
    const device::Stream stream = device_->own_stream();
    for (size_t i = 0; i < parts_.size(); ++i) {
      device_->upload(transfers_[i].to, parts_[i].bytes.data(), transfers_[i].bytes, stream);
    }
    device_->synchronize(stream);
  }

 private:
  device::Device* device_;
  std::vector<Transfer> transfers_;
  std::vector<comm::Part> parts_;
};

}  // namespace

void gather_pieces(comm::Group& group, device::Device& device, std::span<const Whole> wholes,
                   size_t element_bytes, const PieceAt& piece_at, std::string_view label,
                   size_t& done) {
  auto transfers = transfers_of(wholes, group.slice(), element_bytes, piece_at);
  std::vector<std::byte> bounce(device.is_host() ? 0 : kAtATime);
  std::span<Transfer> left(transfers);
  for (size_t operation = 0; !left.empty(); ++operation) {
    const Batch batch(left, device, bounce.data());
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
  if (!device_->is_host()) bounce_.resize(kAtATime);
  comm::Exchange::Ticket last = 0;
  for (std::span<Transfer> left(transfers); !left.empty();) {
    const auto batch = std::make_shared<const Batch>(left, *device_, bounce_.data());
    last =
        exchange.begin(comm::PartsGather{batch->parts(), std::string(label),
                                         [batch] { batch->give(); }, [batch] { batch->take(); }});
  }
  return last;
}

}  // namespace outrigger::engine

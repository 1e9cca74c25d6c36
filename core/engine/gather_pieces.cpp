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

std::vector<Transfer> transfers_of(std::span<const Whole> wholes, int32_t slice, size_t size,
                                   const Pieces& mine) {
  std::vector<Transfer> transfers;
  for (const Whole& whole : wholes) {
    for (const auto& [owner, piece] : whole.owners) {
      const bool is_mine = owner == slice;
      transfers.push_back({owner, is_mine, whole.data + static_cast<size_t>(piece.first) * size,
                           is_mine ? mine.at(piece) : nullptr, piece});
    }
  }
  return transfers;
}

// What is gathered, and how.
struct Job {
  device::Device* device;
  Bounce* bounce;
  Elements elements;
  Pieces mine;
};

// What one operation gathers, its number in a sequence. In its place each transfer has the values,
// where the host cannot have them elsewhere, and behind them what is sent, where that is another
// thing.
class Batch {
 public:
  // Takes it off the list: all of it, or else of each as much as of the others, so that all owners
  // send at a time.
  Batch(std::vector<Transfer>& left, const Job& job, size_t operation)
      : job_(job), operation_(operation) {
    std::byte* const place = job.bounce->place(operation);
    const size_t most = job.bounce->at_a_time();
    const int64_t share = share_of(left, most);
    size_t next = 0;
    for (size_t bytes = 0; next < left.size(); ++next) {
      Transfer& first = left[next];
      const int64_t count = std::min({first.piece.count, share, room_in(most - bytes)});
      if (count == 0 && first.piece.count > 0) break;
      Transfer& part = transfers_.emplace_back(first);
      part.piece = layout::part_of(first.piece, 0, count);
      const size_t n = static_cast<size_t>(count) * job.elements.size();
      std::byte* const values = place == nullptr || is_direct() ? first.to : place + bytes;
      if (in_integers() && !is_direct()) bytes += padded(count);
      const auto sent = static_cast<size_t>(job.elements.bytes_sent(count));
      values_.push_back(values);
      parts_.push_back({first.rank, {in_integers() ? place + bytes : values, sent}});
      bytes += sent;
      first.to += n;
      if (first.from != nullptr) first.from += n;
      first.piece = layout::part_of(first.piece, count, first.piece.count - count);
    }
    std::rotate(left.begin(), left.begin() + static_cast<ptrdiff_t>(next), left.end());
    std::erase_if(left, [](const Transfer& transfer) { return transfer.piece.count == 0; });
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
      if (!part.is_mine || (in_integers() && is_direct())) continue;
      if (job_.mine.on_host && job_.mine.on_host(part.piece, values_[i])) continue;
      if (!comes_down) device.wait(stream, device.record(device.own_stream()));
      comes_down = true;
      device.download(values_[i], part.from, bytes_of(part), stream);
    }
    if (comes_down) device.synchronize(device.record(stream));
    for (size_t i = 0; in_integers() && i < parts_.size(); ++i) {
      const Transfer& part = transfers_[i];
      if (!part.is_mine) continue;
      job_.elements.integers_by->to_integers(parts_[i].bytes.data(),
                                             is_direct() ? part.from : values_[i],
                                             job_.elements.format, part.piece.count);
    }
  }
  // The others' from where the operation has put them, this rank's from the device itself; of what
  // was sent as integers all.
  void take() const {
    device::Device& device = *job_.device;
    for (size_t i = 0; in_integers() && i < parts_.size(); ++i) {
      job_.elements.integers_by->from_integers(values_[i], job_.elements.format,
                                               parts_[i].bytes.data(), transfers_[i].piece.count);
    }
    if (device.is_host()) return;
    const device::Stream stream = device.upload_stream();
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Transfer& part = transfers_[i];
      if (part.from == nullptr || in_integers()) {
        device.upload(part.to, values_[i], bytes_of(part), stream);
      } else if (part.from != part.to) {
        device.copy(part.to, part.from, bytes_of(part), stream);
      }
    }
    job_.bounce->leaves(operation_, device.record(stream));
  }

 private:
  [[nodiscard]] bool in_integers() const { return job_.elements.integers_by != nullptr; }
  // The host reads and writes values where they are.
  [[nodiscard]] bool is_direct() const { return job_.device->is_host(); }
  [[nodiscard]] size_t bytes_of(const Transfer& part) const {
    return static_cast<size_t>(part.piece.count) * job_.elements.size();
  }
  // Of values before integers, which begin at a multiple of a scale's size.
  [[nodiscard]] size_t padded(int64_t count) const {
    return static_cast<size_t>(kernels::in_leaves(count)) * job_.elements.size();
  }
  // Elements of each, in whole leaves; no limit where all of them fit.
  [[nodiscard]] int64_t share_of(const std::vector<Transfer>& left, size_t most) const {
    int64_t all = 0;
    for (const Transfer& transfer : left) {
      all += in_integers() ? kernels::in_leaves(transfer.piece.count) : transfer.piece.count;
    }
    if (all <= room_in(most)) return all;
    return std::max(kernels::kLeaf, room_in(most / left.size()) / kernels::kLeaf * kernels::kLeaf);
  }
  // Elements; of integers whole leaves, so that a piece's next part begins with one.
  [[nodiscard]] int64_t room_in(size_t bytes) const {
    if (!in_integers()) return static_cast<int64_t>(bytes / job_.elements.size());
    const size_t leaf = static_cast<size_t>(job_.elements.bytes_sent(kernels::kLeaf)) +
                        (is_direct() ? 0 : padded(kernels::kLeaf));
    return static_cast<int64_t>(bytes / leaf) * kernels::kLeaf;
  }

  Job job_;
  size_t operation_;
  std::vector<Transfer> transfers_;
  std::vector<std::byte*> values_;  // of each, where the host has them
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
                   std::span<const Whole> wholes, const Elements& elements, const Pieces& mine,
                   std::string_view label, size_t& done) {
  auto transfers = transfers_of(wholes, group.slice(), elements.size(), mine);
  const Job job{&device, &bounce, elements, mine};
  for (size_t operation = 0; !transfers.empty(); ++operation) {
    const Batch batch(transfers, job, operation);
    if (operation < done) continue;
    batch.give();
    group.all_gather_parts(batch.parts(), label);
    batch.take();
    ++done;
  }
}

comm::Exchange::Ticket PiecesAhead::begin(comm::Exchange& exchange, std::span<const Whole> wholes,
                                          const Elements& elements, const Pieces& mine,
                                          std::string_view label, std::function<void()> then) {
  auto transfers = transfers_of(wholes, slice_, elements.size(), mine);
  const Job job{device_, bounce_, elements, mine};
  comm::Exchange::Ticket last = 0;
  while (!transfers.empty()) {
    const auto batch = std::make_shared<const Batch>(transfers, job, operations_++);
    std::function<void()> after = transfers.empty() ? std::move(then) : nullptr;
    last = exchange.begin(comm::PartsGather{batch->parts(), std::string(label),
                                            [batch] { batch->give(); },
                                            [batch, after = std::move(after)] {
                                              batch->take();
                                              if (after) after();
                                            }});
  }
  return last;
}

}  // namespace outrigger::engine

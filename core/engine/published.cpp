// SPDX-License-Identifier: Apache-2.0
#include "core/engine/published.h"

#include <utility>
#include <vector>

#include "core/comm/device_window.h"
#include "core/comm/staged.h"
#include "core/memory/pinned.h"

namespace outrigger::engine {

using memory::Purpose;

Published::Published(comm::Communicator& comm, std::unique_ptr<comm::Group> replicas,
                     std::unique_ptr<comm::Exchange> ahead, const layout::Model& model,
                     const layout::Layout& states, const config::EngineConfig& config,
                     const Plan& plan, const Devices& devices,
                     const std::shared_ptr<comm::DirectRanks>& direct, memory::Ledger& ledger)
    : model_(model),
      states_(states),
      slice_(comm.shape().published_slice()),
      front_(devices.front),
      device_(&devices.of(plan.published_in)),
      shown_(is_offloaded() ? nullptr : devices.shown),
      replicas_(std::move(replicas)),
      format_(config.compute),
      home_(plan.home),
      writes_frozen_(home_ != Home::shared || slice_ == 0),
      comm_(&comm),
      ready_(plan.uploads_updates() ? static_cast<size_t>(states.parameters()) : 0),
      shown_pieces_{[this](const layout::Piece& piece) { return at(piece); }},
      exchange_(std::move(ahead)) {
  if (const int32_t slices = comm.shape().published_slices(); slices != states.world()) {
    coarser_ = states.in_slices(slices);
  }
  if (home_ == Home::shared || home_ == Home::replica) {
    if (!device_->is_host() && !exchange_) {
      std::unique_ptr<comm::Communicator> host = comm.duplicate("publish");
      on_device_ = direct ? comm::make_direct(std::move(host), direct, comm::Sums::ranked, 0)
                          : comm::make_staged(std::move(host), *device_, *devices.host,
                                              memory::page_lock(*device_, ledger, config.pin),
                                              static_cast<size_t>(plan.publish_staging), 0);
      comm_ = on_device_.get();
    }
    const auto kind = home_ == Home::shared ? comm::WindowKind::common : comm::WindowKind::per_rank;
    const auto bytes = static_cast<size_t>(plan.shared_published);
    constexpr std::string_view kLabel = "published parameters";
    if (exchange_ && !device_->is_host()) {
      window_ = comm::create_device_window(comm, *device_, bytes, kLabel);
      bounce_.emplace(*device_, ledger, config.pin, plan.publish_staging);
      pieces_ahead_.emplace(*device_, *bounce_, comm.slice());
    } else {
      window_ = exchange_ ? exchange_->create_window(kind, bytes, kLabel)
                          : comm_->create_window(kind, bytes, kLabel);
    }
    data_ = window_->block(comm.rank());
    if (home_ == Home::shared && !replicas_ && comm.slices() > 1) marks_.emplace(comm);
    if (device_->is_host()) {
      ledger.add_neighbour({data_, static_cast<size_t>(plan.published)});
      window_note_ = memory::PageNote(ledger, {data_, static_cast<size_t>(plan.shared_published)});
    }
    window_charge_ = memory::Charge(ledger, Purpose::published, plan.published, plan.published_in);
  } else {
    private_ = memory::Block(ledger, Purpose::published, plan.published, device_, device::kNoStream,
                             shown_);
    data_ = private_.data();
    if (plan.published_at_commit && device_->is_host()) ledger.touch(plan.published);
  }
  if (is_offloaded()) {
    const int64_t bytes = window_ ? plan.shared_published : plan.published;
    pinned_ =
        memory::Pinned(*front_, ledger, {data_, static_cast<size_t>(bytes)}, config.pin_params);
  }
  if (!bounce_) staging_charge_ = memory::Charge(ledger, Purpose::buckets, plan.publish_staging);
  if (exchange_) exchange_->start();  // here a rank can still refuse
}

Published::~Published() {
  stop();
  if (!window_ || !front_->is_host()) return;
  window_->give_back();
  shown_->keep(std::move(window_));
}

void Published::list_movable(std::vector<Movable>& all, memory::Ledger& ledger) {
  if (device_->is_host()) return;
  if (window_) {
    add_movable(all, OTR_STATES_PUBLISHED, Purpose::published, *window_, comm_->rank(), ledger,
                window_charge_, true);
  } else {
    add_movable(all, OTR_STATES_PUBLISHED, Purpose::published, private_, true);
  }
  if (all.empty()) return;
  Movable& own = all.back();
  own.restore = [this, restore = std::move(own.restore), data = own.data] {
    restore();
    data_ = data();
  };
}

int64_t Published::place_of(const layout::Piece& piece) const {
  if (home_ != Home::slices) return piece.flat;
  const layout::Bucket& bucket = layout().bucket(layout().position(piece.parameter).bucket);
  return bucket.shard + piece.flat - bucket.begin - slice_ * bucket.slice;
}

std::byte* Published::at(const layout::Piece& piece) const {
  return data_ + bytes_of(place_of(piece), format_);
}

std::byte* Published::whole(int64_t root) const {
  const layout::Position& position = layout().position(root);
  if (home_ != Home::slices) return data_ + bytes_of(position.flat, format_);
  if (position.bucket >= 0) {
    if (layout().world() > 1) return nullptr;
    const layout::Bucket& bucket = layout().bucket(position.bucket);
    return data_ + bytes_of(bucket.shard + position.flat - bucket.begin, format_);
  }
  const int64_t after_slices =
      layout().shard_elements() + position.flat - layout().trainable_elements();
  return data_ + bytes_of(after_slices, format_);
}

void Published::begin(const layout::Bucket& bucket, const Pieces& mine,
                      std::function<void()> then) {
  if (pieces_ahead_) return begin_pieces(bucket, mine, std::move(then));
  const size_t size = kernels::size_of(format_);
  exchange_->begin(comm::WindowGather{*window_, static_cast<size_t>(bucket.begin) * size,
                                      static_cast<size_t>(bucket.slice) * size,
                                      "publish parameters", std::move(then)});
}

void Published::begin_pieces(const layout::Bucket& bucket, const Pieces& mine,
                             std::function<void()> then) {
  // What comes down is read in the order of the own stream.
  device_->wait(device_->own_stream(), device_->record(device_->upload_stream()));
  std::vector<Whole> wholes;
  for (const int64_t root : bucket.parameters) {
    wholes.push_back({states_.owners(model_, root), whole(root)});
  }
  pieces_ahead_->begin(*exchange_, wholes, {format_}, mine, "publish parameters",
                       [this, &bucket, then = std::move(then)] {
                         const device::Event come = device_->record(device_->upload_stream());
                         for (const int64_t root : bucket.parameters) set_ready(root, come);
                         if (then) then();
                       });
}

void Published::wait_all() {
  exchange_->wait_all();
  if (!pieces_ahead_) return;
  device_->wait(device_->own_stream(), device_->record(device_->upload_stream()));
}

int64_t Published::publish() {
  if (exchange_) {
    for (const layout::Bucket& bucket : states_.buckets()) begin(bucket, shown_pieces_, nullptr);
    wait_all();
    return 0;  // the exchange's own spans have them
  }
  const size_t size = kernels::size_of(format_);
  const int64_t all = bytes_of(layout().trainable_elements(), format_);
  int64_t exchanged = 0;
  // One rank has written all of it, and its forward may read it by now.
  if (home_ == Home::replica && comm_->size() > 1) {
    std::vector<comm::Communicator::SliceRun> runs;
    for (const layout::Bucket& bucket : states_.buckets()) {
      runs.push_back(
          {static_cast<size_t>(bucket.begin) * size, static_cast<size_t>(bucket.slice) * size});
    }
    comm_->all_gather_runs(*window_, runs, "publish parameters");
    exchanged += all;
  }
  if (!replicas_) return exchanged;
  std::vector<Whole> wholes;
  for (const layout::Bucket& bucket : layout().buckets()) {
    const int64_t begin =
        home_ == Home::slices ? bucket.shard : bucket.begin + slice_ * bucket.slice;
    const int64_t part = bucket.slice / replicas_->slices();
    Whole& whole = wholes.emplace_back(Whole{{}, data_ + bytes_of(begin, format_)});
    for (int32_t i = 0; i < replicas_->slices(); ++i) {
      whole.owners.push_back({i, {-1, i * part, part, -1, begin + i * part}});
    }
  }
  gather_parts(wholes);
  if (home_ == Home::shared) comm_->barrier("publish parameters");  // others have filled it, too
  return exchanged + all;
}

void Published::publish(std::span<const int64_t> roots) const {
  if (!replicas_) return;
  std::vector<Whole> wholes;
  for (const int64_t root : roots) {
    Whole whole{};
    for (auto [owner, piece] : states_.owners(model_, root)) {
      if (owner / replicas_->slices() != slice_) continue;
      piece.shard = place_of(piece);
      whole.data = data_ + bytes_of(piece.shard - piece.first, format_);
      whole.owners.push_back({owner % replicas_->slices(), piece});
    }
    if (!whole.owners.empty()) wholes.push_back(std::move(whole));
  }
  gather_parts(wholes);
}

void Published::gather_parts(std::span<const Whole> wholes) const {
  size_t done = 0;
  Bounce bounce(*device_);
  gather_pieces(
      *replicas_, *device_, bounce, wholes, {format_},
      {[this](const layout::Piece& piece) { return data_ + bytes_of(piece.shard, format_); }},
      "publish parameters", done);
  device_->wait(device_->own_stream(), device_->record(device_->upload_stream()));
}

void Published::give_up(int32_t culprit) const noexcept {
  if (exchange_) exchange_->give_up(culprit);
  if (on_device_) on_device_->give_up(culprit);
  if (replicas_) replicas_->give_up(culprit);
}

void Published::abort(std::string_view reason) const noexcept {
  if (on_device_) on_device_->abort(reason);
  if (replicas_) replicas_->abort(reason);
}

void Published::cancel() const noexcept {
  if (exchange_) exchange_->cancel();
  if (on_device_) on_device_->cancel();
  if (replicas_) replicas_->cancel();
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
#include "core/engine/published.h"

#include "core/comm/staged.h"

namespace outrigger::engine {

using memory::Purpose;

Published::Published(comm::Communicator& comm, const layout::Layout& layout,
                     const config::EngineConfig& config, const Plan& plan, const Devices& devices,
                     device::Device& host, memory::Ledger& ledger)
    : layout_(layout),
      format_(config.compute),
      home_(plan.home),
      writes_frozen_(home_ != Home::shared || comm.slice() == 0),
      comm_(&comm) {
  if (home_ == Home::shared || home_ == Home::replica) {
    if (!devices.front->is_host()) {
      staged_ = comm::make_staged(comm.duplicate("publish"), *devices.front, host,
                                  static_cast<size_t>(plan.publish_staging), 0);
      comm_ = staged_.get();
    }
    const auto kind = home_ == Home::shared ? comm::WindowKind::common : comm::WindowKind::per_rank;
    window_ = comm_->create_window(kind, static_cast<size_t>(plan.shared_published),
                                   "published parameters");
    data_ = window_->block(comm.rank());
    if (devices.front->is_host()) {
      ledger.add_neighbour({data_, static_cast<size_t>(plan.published)});
    }
    window_charge_ = memory::Charge(ledger, Purpose::published, plan.published, plan.front);
  } else {
    private_ = memory::Block(ledger, Purpose::published, plan.published, devices.front);
    data_ = private_.data();
  }
  staging_charge_ = memory::Charge(ledger, Purpose::buckets, plan.publish_staging);
}

std::byte* Published::at(const layout::Piece& piece) const {
  return data_ + bytes_of(home_ == Home::slices ? piece.shard : piece.flat, format_);
}

std::byte* Published::whole(int64_t root) const {
  const layout::Position& position = layout_.position(root);
  if (home_ != Home::slices) return data_ + bytes_of(position.flat, format_);
  if (position.bucket >= 0) return nullptr;
  const int64_t after_slices =
      layout_.shard_elements() + position.flat - layout_.trainable_elements();
  return data_ + bytes_of(after_slices, format_);
}

void Published::publish() const {
  if (home_ != Home::replica) return;
  const size_t size = kernels::size_of(format_);
  for (const layout::Bucket& bucket : layout_.buckets()) {
    comm_->all_gather_window(*window_, static_cast<size_t>(bucket.begin) * size,
                             static_cast<size_t>(bucket.slice) * size, "publish parameters");
  }
}

void Published::give_up(int32_t culprit) const noexcept {
  if (staged_) staged_->give_up(culprit);
}

void Published::cancel() const noexcept {
  if (staged_) staged_->cancel();
}

}  // namespace outrigger::engine

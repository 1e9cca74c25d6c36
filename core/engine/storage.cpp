// SPDX-License-Identifier: Apache-2.0
#include "core/engine/storage.h"

#include "core/comm/staged.h"

namespace outrigger::engine {
namespace {

using kernels::Format;
using memory::Block;
using memory::Purpose;

std::byte* at(const Block& block, int64_t element, Format format) {
  return block.data() + bytes_of(element, format);
}

}  // namespace

Storage::Storage(comm::Communicator& comm, const layout::Model& model, const layout::Layout& layout,
                 const config::EngineConfig& config, const Plan& plan, const Devices& devices,
                 memory::Ledger& ledger)
    : layout_(layout),
      compute_(config.compute),
      master_format_(config.optimizer.master.format),
      exp_avg_format_(config.optimizer.exp_avg.format),
      exp_avg_sq_format_(config.optimizer.exp_avg_sq.format),
      home_(plan.home),
      separate_master_(plan.separate_master),
      writes_frozen_(home_ != Home::shared || comm.rank() == 0),
      pieces_(plan.pieces(model, layout, comm.rank())),
      second_moments_(plan.second_moments),
      comm_(&comm) {
  if (home_ == Home::shared || home_ == Home::replica) {
    if (!devices.front->is_host()) {
      staged_ = comm::make_staged(comm.duplicate("publish"), *devices.front,
                                  static_cast<size_t>(plan.publish_staging), 0);
      comm_ = staged_.get();
    }
    const auto kind = home_ == Home::shared ? comm::WindowKind::common : comm::WindowKind::per_rank;
    window_ = comm_->create_window(kind, static_cast<size_t>(plan.shared_published),
                                   "published parameters");
    published_ = window_->block(comm.rank());
    if (devices.front->is_host()) {
      ledger.add_neighbour({published_, static_cast<size_t>(plan.published)});
    }
    window_charge_ = memory::Charge(ledger, Purpose::published, plan.published, plan.front);
  } else {
    private_published_ = Block(ledger, Purpose::published, plan.published, devices.front);
    published_ = private_published_.data();
  }
  staging_charge_ = memory::Charge(ledger, Purpose::buckets, plan.publish_staging);
  master_ = Block(ledger, Purpose::master, plan.master, devices.back);
  exp_avg_ = Block(ledger, Purpose::exp_avg, plan.exp_avg, devices.back);
  exp_avg_sq_ = Block(ledger, Purpose::exp_avg_sq, plan.exp_avg_sq, devices.back);
}

std::byte* Storage::published(const layout::Piece& piece) const {
  return published_ + bytes_of(home_ == Home::slices ? piece.shard : piece.flat, compute_);
}

std::byte* Storage::whole(int64_t root) const {
  const layout::Position& position = layout_.position(root);
  if (home_ != Home::slices) return published_ + bytes_of(position.flat, compute_);
  if (position.bucket >= 0) return nullptr;
  const int64_t after_slices =
      layout_.shard_elements() + position.flat - layout_.trainable_elements();
  return published_ + bytes_of(after_slices, compute_);
}

void Storage::publish() const {
  if (home_ != Home::replica) return;
  const size_t size = kernels::size_of(compute_);
  for (const layout::Bucket& bucket : layout_.buckets()) {
    comm_->all_gather_window(*window_, static_cast<size_t>(bucket.begin) * size,
                             static_cast<size_t>(bucket.slice) * size, "publish parameters");
  }
}

void Storage::give_up(int32_t culprit) const noexcept {
  if (staged_) staged_->give_up(culprit);
}

void Storage::cancel() const noexcept {
  if (staged_) staged_->cancel();
}

std::byte* Storage::master(const layout::Piece& piece) const {
  return has_separate_master() ? at(master_, piece.shard, master_format_) : published(piece);
}

std::byte* Storage::exp_avg(const layout::Piece& piece) const {
  return at(exp_avg_, piece.shard, exp_avg_format_);
}

std::byte* Storage::exp_avg_sq(const layout::Piece& piece) const {
  const int64_t element =
      second_moments_.empty() ? piece.shard : second_moments_[static_cast<size_t>(piece.parameter)];
  return at(exp_avg_sq_, element, exp_avg_sq_format_);
}

}  // namespace outrigger::engine

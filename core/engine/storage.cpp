// SPDX-License-Identifier: Apache-2.0
#include "core/engine/storage.h"

namespace outrigger::engine {
namespace {

using kernels::Format;
using memory::Block;
using memory::Purpose;

int64_t bytes_of(int64_t elements, Format format) {
  return elements * static_cast<int64_t>(kernels::size_of(format));
}

std::byte* at(const Block& block, int64_t element, Format format) {
  return block.data() + bytes_of(element, format);
}

}  // namespace

Storage::Storage(comm::Communicator& comm, const layout::Model& model, const layout::Layout& layout,
                 const config::EngineConfig& config, memory::Ledger& ledger)
    : layout_(layout),
      compute_(config.compute),
      master_format_(config.optimizer.master.format),
      exp_avg_format_(config.optimizer.exp_avg.format),
      exp_avg_sq_format_(config.optimizer.exp_avg_sq.format),
      home_(config.stage == 0      ? Home::copy
            : comm.shares_memory() ? Home::shared
            : config.stage == 3    ? Home::slices
                                   : Home::replica),
      writes_frozen_(home_ != Home::shared || comm.rank() == 0),
      pieces_(sharded() ? layout.pieces_of_rank(model, comm.rank()) : layout.pieces_of_all(model)) {
  const int64_t charged = bytes_of(charged_elements(comm), compute_);
  if (home_ == Home::shared || home_ == Home::replica) {
    const auto kind = home_ == Home::shared ? comm::WindowKind::common : comm::WindowKind::per_rank;
    const int64_t bytes = bytes_of(layout.flat_elements(), compute_);
    window_ = comm.create_window(kind, static_cast<size_t>(bytes), "published parameters");
    published_ = window_->block(comm.rank());
    window_charge_ = memory::Charge(ledger, Purpose::published, charged);
  } else {
    private_published_ = Block(ledger, Purpose::published, charged);
    published_ = private_published_.data();
  }
  const int64_t owned = sharded() ? layout.shard_elements() : layout.trainable_elements();
  if (master_format_ != compute_)
    master_ = Block(ledger, Purpose::master, bytes_of(owned, master_format_));
  exp_avg_ = Block(ledger, Purpose::exp_avg, bytes_of(owned, exp_avg_format_));
  exp_avg_sq_ = Block(ledger, Purpose::exp_avg_sq, bytes_of(owned, exp_avg_sq_format_));
}

// A shared block is charged by slices, and frozen parameters in it to rank 0.
int64_t Storage::charged_elements(const comm::Communicator& comm) const {
  const int64_t frozen = layout_.flat_elements() - layout_.trainable_elements();
  if (home_ == Home::shared) return layout_.shard_elements() + (comm.rank() == 0 ? frozen : 0);
  return home_ == Home::slices ? layout_.shard_elements() + frozen : layout_.flat_elements();
}

std::byte* Storage::published(const layout::Piece& piece) const {
  return published_ + bytes_of(home_ == Home::slices ? piece.shard : piece.flat, compute_);
}

std::byte* Storage::whole(int64_t root) const {
  const layout::Place& place = layout_.place(root);
  if (home_ != Home::slices) return published_ + bytes_of(place.flat, compute_);
  if (place.bucket >= 0) return nullptr;
  const int64_t after_slices = layout_.shard_elements() + place.flat - layout_.trainable_elements();
  return published_ + bytes_of(after_slices, compute_);
}

void Storage::publish(comm::Communicator& comm) const {
  if (home_ != Home::replica) return;
  const size_t size = kernels::size_of(compute_);
  for (const layout::Bucket& bucket : layout_.buckets()) {
    comm.all_gather_window(*window_, static_cast<size_t>(bucket.begin) * size,
                           static_cast<size_t>(bucket.slice) * size, "publish parameters");
  }
}

std::byte* Storage::master(const layout::Piece& piece) const {
  return master_ ? at(master_, piece.shard, master_format_) : published(piece);
}

std::byte* Storage::exp_avg(const layout::Piece& piece) const {
  return at(exp_avg_, piece.shard, exp_avg_format_);
}

std::byte* Storage::exp_avg_sq(const layout::Piece& piece) const {
  return at(exp_avg_sq_, piece.shard, exp_avg_sq_format_);
}

}  // namespace outrigger::engine

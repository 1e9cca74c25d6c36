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
    : compute_(config.compute),
      master_format_(config.optimizer.master.format),
      exp_avg_format_(config.optimizer.exp_avg.format),
      exp_avg_sq_format_(config.optimizer.exp_avg_sq.format),
      sharded_(config.stage > 0),
      writes_frozen_(config.stage == 0 || comm.rank() == 0) {
  const int64_t published_bytes = bytes_of(layout.flat_elements(), compute_);
  if (sharded_) {
    pieces_ = layout.pieces_of_rank(model, comm.rank());
    window_ = comm.create_window(comm::WindowKind::common, static_cast<size_t>(published_bytes),
                                 "published parameters");
    published_ = window_->block(comm.rank());
    // A shared block is charged by slices; frozen parameters to rank 0.
    const int64_t frozen = layout.flat_elements() - layout.trainable_elements();
    const int64_t share = layout.shard_elements() + (comm.rank() == 0 ? frozen : 0);
    window_charge_ = memory::Charge(ledger, Purpose::published, bytes_of(share, compute_));
  } else {
    pieces_ = layout.pieces_of_all(model);
    private_published_ = Block(ledger, Purpose::published, published_bytes);
    published_ = private_published_.data();
  }
  const int64_t owned = sharded_ ? layout.shard_elements() : layout.trainable_elements();
  if (master_format_ != compute_)
    master_ = Block(ledger, Purpose::master, bytes_of(owned, master_format_));
  exp_avg_ = Block(ledger, Purpose::exp_avg, bytes_of(owned, exp_avg_format_));
  exp_avg_sq_ = Block(ledger, Purpose::exp_avg_sq, bytes_of(owned, exp_avg_sq_format_));
}

std::byte* Storage::published(int64_t flat) const { return published_ + bytes_of(flat, compute_); }

std::byte* Storage::master(const layout::Piece& piece) const {
  return master_ ? at(master_, piece.shard, master_format_) : published(piece.flat);
}

std::byte* Storage::exp_avg(const layout::Piece& piece) const {
  return at(exp_avg_, piece.shard, exp_avg_format_);
}

std::byte* Storage::exp_avg_sq(const layout::Piece& piece) const {
  return at(exp_avg_sq_, piece.shard, exp_avg_sq_format_);
}

}  // namespace outrigger::engine

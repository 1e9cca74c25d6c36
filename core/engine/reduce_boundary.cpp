// SPDX-License-Identifier: Apache-2.0
#include "core/engine/reduce_boundary.h"

#include <cstring>

#include "core/context/error.h"

namespace outrigger::engine {

BoundaryReducer::BoundaryReducer(const ReduceContext& context,
                                 std::unique_ptr<comm::Communicator> comm)
    : Reducer(context),
      comm_(std::move(comm)),
      format_(context.config->accumulator),
      entries_(static_cast<size_t>(context.model->size())) {
  const int64_t bytes =
      context.layout->trainable_elements() * static_cast<int64_t>(kernels::size_of(format_));
  window_ = comm_->create_window(comm::WindowKind::per_rank, static_cast<size_t>(bytes),
                                 "gradient accumulators");
  charge_ = memory::Charge(*context.ledger, memory::Purpose::accumulators, bytes);
}

std::byte* BoundaryReducer::at(int64_t flat) const {
  return window_->block(comm_->rank()) + flat * static_cast<int64_t>(kernels::size_of(format_));
}

void* BoundaryReducer::slot(int64_t root) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  const std::lock_guard lock(entry.mutex);
  if (entry.slot != nullptr) slot_is_out(root);
  if (!entry.filled && format_ == context_.config->compute) {
    entry.slot = at(context_.layout->place(root).flat);
  } else {
    entry.scratch = scratch_for(root);
    entry.slot = entry.scratch.data();
  }
  return entry.slot;
}

void BoundaryReducer::add(int64_t root, const tensor::View& grad) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  std::byte* place = at(context_.layout->place(root).flat);
  const std::lock_guard lock(entry.mutex);
  const bool is_slot = grad.data == entry.slot;
  if (is_slot) check_slot(root, grad);
  if (entry.slot == place) {
    if (is_slot) {
      settle(entry, place, grad.count);
    } else {
      const bool first = !entry.waiting;
      if (first) entry.waiting = scratch_for(root);
      deposit(entry.waiting.data(), format_, first, grad);
    }
  } else {
    deposit(place, format_, !entry.filled, grad);
    entry.filled = true;
  }
  if (is_slot) {
    entry.slot = nullptr;
    entry.scratch = {};
  }
  mark_present(root);
  contributed_ = true;
}

// The slot in the accumulator holds a gradient now; adds what waited for it.
void BoundaryReducer::settle(Entry& entry, std::byte* place, int64_t count) {
  if (entry.waiting) kernels::add(place, format_, entry.waiting.data(), format_, count);
  entry.waiting = {};
  entry.filled = true;
}

void BoundaryReducer::end_pass(bool abandoned) {
  if (abandoned && contributed_) discard_ = true;
  for (size_t id = 0; id < entries_.size(); ++id) {
    Entry& entry = entries_[id];
    const std::lock_guard lock(entry.mutex);
    if (entry.waiting) {  // the slot never came back
      const auto root = static_cast<int64_t>(id);
      kernels::convert(at(context_.layout->place(root).flat), format_, entry.waiting.data(),
                       format_, context_.model->at(root).count);
      entry.waiting = {};
      entry.filled = true;
    }
    entry.slot = nullptr;
    entry.scratch = {};
  }
}

void BoundaryReducer::zero_missing() {
  for (const layout::Bucket& bucket : context_.layout->buckets()) {
    for (const int64_t id : bucket.parameters) {
      if (entries_[static_cast<size_t>(id)].filled) continue;
      const int64_t bytes =
          context_.model->at(id).count * static_cast<int64_t>(kernels::size_of(format_));
      std::memset(at(context_.layout->place(id).flat), 0, static_cast<size_t>(bytes));
    }
  }
}

Summed BoundaryReducer::finish() {
  zero_missing();
  Summed summed;
  summed.discard = discard_;
  const size_t size = kernels::size_of(format_);
  for (const layout::Bucket& bucket : context_.layout->buckets()) {
    const int64_t own = bucket.begin + comm_->rank() * bucket.slice;
    const auto fold = [&](std::span<const void* const> slices) {
      const SliceFold slice{slices, format_, at(own), format_, false, bucket.slice, own};
      kernels::merge(summed.norm, fold_slice(*context_.workers, slice, summed.origin));
    };
    comm_->reduce_scatter(*window_, static_cast<size_t>(bucket.begin) * size,
                          static_cast<size_t>(bucket.slice) * size, fold, "reduce gradients");
  }
  if (context_.config->stage == 0) {
    for (const layout::Bucket& bucket : context_.layout->buckets()) {
      comm_->all_gather_window(*window_, static_cast<size_t>(bucket.begin) * size,
                               static_cast<size_t>(bucket.slice) * size, "gather gradients");
    }
  }
  return summed;
}

const void* BoundaryReducer::gradient(const layout::Piece& piece) const { return at(piece.flat); }

void BoundaryReducer::on_clear() {
  for (Entry& entry : entries_) entry.filled = false;
  discard_ = false;
}

}  // namespace outrigger::engine

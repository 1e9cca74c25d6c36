// SPDX-License-Identifier: Apache-2.0
// The background side of the micro-step order: one thread that sends buckets out in order.
#include <algorithm>

#include "core/comm/combine.h"
#include "core/engine/reduce_micro_step.h"

namespace outrigger::engine {

void MicroStepReducer::process(const Item& item) {
  if (item.bucket >= 0) {
    reduce_bucket(*item.pass, item);
  } else {
    end_of_pass(*item.pass);
  }
}

// Copies a parameter's value into the bucket's buffer (null: zeros) and clears its padding.
void MicroStepReducer::place_parameter(std::byte* buffer, const layout::Bucket& bucket,
                                       int64_t root, const std::byte* value) const {
  const auto size = static_cast<int64_t>(kernels::size_of(compute_));
  const layout::Position& position = context_.layout->position(root);
  std::byte* to = buffer + (position.flat - bucket.begin) * size;
  const int64_t count = value == nullptr ? 0 : context_.model->at(root).count;
  const device::Stream stream = back().own_stream();
  if (value != nullptr) back().copy(to, value, static_cast<size_t>(count * size), stream);
  back().zero(to + count * size, static_cast<size_t>((position.padded - count) * size), stream);
}

void MicroStepReducer::reduce_bucket(const Pass& pass, const Item& item) {
  const layout::Bucket& bucket = context_.layout->bucket(item.bucket);
  const uint64_t turn = pass.first_turn + static_cast<uint64_t>(item.bucket);
  if (turn >= buffers_) comm_->wait_drained(tickets_[turn % buffers_], "reuse a gradient bucket");
  std::byte* to = buffer(turn);
  const auto size = static_cast<int64_t>(kernels::size_of(compute_));
  int64_t filled = 0;
  for (const int64_t root : bucket.parameters) {
    // Complete, or the pass has ended: nobody else touches value and scratch any more.
    auto& entry = const_cast<Entry&>(pass.entries[static_cast<size_t>(root)]);
    settle(entry.in_flight);
    place_parameter(to, bucket, root, entry.value);
    entry.scratch = {};
    filled += context_.layout->position(root).padded;
  }
  back().zero(to + filled * size, static_cast<size_t>((bucket.elements - filled) * size),
              back().own_stream());
  const bool add = !pass.first_of_window;
  const uint64_t ticket =
      comm_->reduce(reduction(bucket, *ring_, buffer_offset(turn), add), "reduce gradients");
  tickets_[turn % buffers_].store(ticket, std::memory_order_release);
  turns_done_.store(turn + 1, std::memory_order_release);
}

// Of a bucket whose values begin at `offset` of each rank's block.
comm::Reduce MicroStepReducer::reduction(const layout::Bucket& bucket, const comm::Window& window,
                                         size_t offset, bool add) {
  const int64_t flat = bucket.begin + comm_->rank() * bucket.slice;
  kernels::NormSum& norm = norms_[static_cast<size_t>(&bucket - context_.layout->buckets().data())];
  norm = {};  // that of the sum so far
  return {window,
          offset,
          static_cast<size_t>(bucket.slice) * kernels::size_of(compute_),
          back(),
          {{}, compute_, accumulator(flat, bucket.shard), format_, add, bucket.slice, flat},
          &norm,
          &origin_};
}

// All ranks tell what they have beyond the buckets, and reduce it together.
void MicroStepReducer::end_of_pass(Pass& pass) {
  // One bit for each parameter that is late somewhere; the last one: the window is to be discarded.
  const auto parameters = static_cast<int64_t>(pass.entries.size());
  Bits late(parameters + 1);
  for (int64_t id = 0; id < parameters; ++id) {
    if (pass.entries[static_cast<size_t>(id)].late) late.set(id);
  }
  if (pass.abandoned && pass.contributed) late.set(parameters);
  comm::unite(*comm_, late.words(), "end of a backward pass");
  if (late[parameters]) discard_ = true;
  const auto& buckets = context_.layout->buckets();
  for (size_t b = 0; b < buckets.size(); ++b) {
    const auto& roots = buckets[b].parameters;
    const bool any = std::any_of(roots.begin(), roots.end(), [&](int64_t id) { return late[id]; });
    if (any) reduce_late(pass, static_cast<int64_t>(b), late);
  }
}

void MicroStepReducer::reduce_late(Pass& pass, int64_t index, const Bits& late) {
  const layout::Bucket& bucket = context_.layout->bucket(index);
  const auto size = static_cast<int64_t>(kernels::size_of(compute_));
  if (!late_ring_) {
    const int64_t bytes = context_.layout->largest_bucket() * size;
    late_ring_ = comm_->create_window(comm::WindowKind::per_rank, static_cast<size_t>(bytes),
                                      "late gradient bucket");
    late_charge_ =
        memory::Charge(*context_.ledger, memory::Purpose::buckets, bytes, context_.plan->back);
  }
  if (late_used_) comm_->wait_drained(late_ticket_, "reuse the late gradient bucket");
  std::byte* to = late_ring_->block(comm_->rank());
  back().zero(to, static_cast<size_t>(bucket.elements * size), back().own_stream());
  for (const int64_t root : bucket.parameters) {
    Entry& entry = pass.entries[static_cast<size_t>(root)];
    settle(entry.late_in_flight);
    if (late[root] && entry.late) {
      place_parameter(to, bucket, root, entry.late.data());
    }
    entry.late = {};
  }
  late_ticket_ = comm_->reduce(reduction(bucket, *late_ring_, 0, true), "reduce late gradients");
  late_used_ = true;
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// What the micro-step order gives its sequence of operations: buckets in order, and ends of passes.
#include <algorithm>
#include <utility>

#include "core/comm/combine.h"
#include "core/engine/reduce_micro_step.h"

namespace outrigger::engine {

void MicroStepReducer::begin_bucket(const std::shared_ptr<Pass>& pass, int64_t index) {
  const uint64_t turn = pass->first_turn + static_cast<uint64_t>(index);
  for (const int64_t root : context_.bucket(index).parameters) {
    front().wait(fill_stream(), std::exchange(pass->entries[static_cast<size_t>(root)].ready, {}));
  }
  produced_[turn % buffers_] = front().record(fill_stream());
  // On a device with offload it comes down while earlier ones are summed.
  const bool early = context_.offloaded() && is_free(turn);
  if (early) pass->packed[static_cast<size_t>(index)] = fill_bucket(*pass, index);
  comm::Reduction operation = reduction(context_.bucket(index), *ring_, buffer_offset(turn),
                                        compute_, !pass->first_of_window, "reduce gradients");
  operation.prepare = [this, pass, index] {
    std::optional<device::Event>& packed = pass->packed[static_cast<size_t>(index)];
    if (!packed) packed = fill_bucket(*pass, index);
    if (context_.offloaded()) front().synchronize(*packed);
  };
  operation.reuse = "reuse a gradient bucket";
  const comm::Exchange::Ticket ticket = exchange_->begin(std::move(operation));
  tickets_[turn % buffers_].store(ticket, std::memory_order_relaxed);
  turns_begun_.store(turn + 1, std::memory_order_release);
}

// Copies a parameter's value into the bucket's buffer (null: zeros) and clears its padding.
void MicroStepReducer::place_parameter(std::byte* buffer, const layout::Bucket& bucket,
                                       int64_t root, const std::byte* value) const {
  const auto size = static_cast<int64_t>(kernels::size_of(compute_));
  const layout::Position& position = context_.layout->position(root);
  std::byte* to = buffer + (position.flat - bucket.begin) * size;
  const int64_t count = value == nullptr ? 0 : context_.model->at(root).count;
  const device::Stream stream = fill_stream();
  if (value != nullptr) front().copy(to, value, static_cast<size_t>(count * size), stream);
  front().zero(to + count * size, static_cast<size_t>((position.padded - count) * size), stream);
}

device::Event MicroStepReducer::bring(std::byte* to, const std::byte* from,
                                      const layout::Bucket& bucket) const {
  if (!context_.offloaded()) return {};
  const int64_t bytes = bytes_of(bucket.elements, compute_);
  front().download(to, from, static_cast<size_t>(bytes), fill_stream());
  return front().record(fill_stream());
}

// All parameters are complete, or the pass has ended: nobody else touches their values any more.
device::Event MicroStepReducer::fill_bucket(Pass& pass, int64_t index) {
  const layout::Bucket& bucket = context_.bucket(index);
  const uint64_t turn = pass.first_turn + static_cast<uint64_t>(index);
  std::byte* to = buffer(turn);
  const auto size = static_cast<int64_t>(kernels::size_of(compute_));
  int64_t filled = 0;
  for (const int64_t root : bucket.parameters) {
    Entry& entry = pass.entries[static_cast<size_t>(root)];
    place_parameter(to, bucket, root, entry.value);
    entry.scratch.free_after(fill_stream());
    entry.scratch = {};
    filled += context_.layout->position(root).padded;
  }
  front().zero(to + filled * size, static_cast<size_t>((bucket.elements - filled) * size),
               fill_stream());
  return bring(ring_->block(context_.rank) + buffer_offset(turn), to, bucket);
}

// All ranks tell what they have beyond the buckets, and reduce it together.
void MicroStepReducer::begin_end(const std::shared_ptr<Pass>& pass) {
  const auto unite = [](size_t, auto into, auto from) { comm::merge_bits(into, from); };
  exchange_->begin(comm::Combination{std::as_writable_bytes(pass->late.words()), unite,
                                     "end of a backward pass", [this, pass] { find_late(*pass); },
                                     [this, pass] { return late_reductions(pass); }});
}

void MicroStepReducer::find_late(Pass& pass) const {
  for (size_t id = 0; id < pass.entries.size(); ++id) {
    if (pass.entries[id].late) pass.late.set(static_cast<int64_t>(id));
  }
  if (pass.abandoned && pass.contributed) pass.late.set(context_.model->size());
}

std::vector<comm::Reduction> MicroStepReducer::late_reductions(const std::shared_ptr<Pass>& pass) {
  if (pass->late[context_.model->size()]) discard_ = true;
  std::vector<comm::Reduction> operations;
  const auto buckets = context_.buckets();
  for (size_t b = 0; b < buckets.size(); ++b) {
    const auto& roots = buckets[b].parameters;
    if (std::none_of(roots.begin(), roots.end(), [&](int64_t id) { return pass->late[id]; })) {
      continue;
    }
    if (!late_ring_) {
      const auto size = static_cast<int64_t>(kernels::size_of(compute_));
      const int64_t bytes = context_.side->largest * size;
      late_ring_ =
          make_window(bytes, memory::Purpose::buckets, "late gradient bucket", late_entered_);
      if (context_.offloaded()) {
        late_pinned_ = pinned({late_ring_->block(context_.rank), static_cast<size_t>(bytes)});
        late_packing_ = memory::Block(*context_.ledger, memory::Purpose::buckets, bytes, &front());
      }
    }
    comm::Reduction& operation = operations.emplace_back(
        reduction(buckets[b], *late_ring_, 0, compute_, true, "reduce late gradients"));
    operation.prepare = [this, pass, b] { fill_late_bucket(*pass, static_cast<int64_t>(b)); };
    operation.reuse = "reuse the late gradient bucket";
  }
  return operations;
}

void MicroStepReducer::fill_late_bucket(Pass& pass, int64_t index) {
  const layout::Bucket& bucket = context_.bucket(index);
  const bool offloaded = context_.offloaded();
  std::byte* const everybodys = late_ring_->block(context_.rank);
  std::byte* const to = offloaded ? late_packing_.data() : everybodys;
  front().zero(to, static_cast<size_t>(bytes_of(bucket.elements, compute_)), fill_stream());
  for (const int64_t root : bucket.parameters) {
    Entry& entry = pass.entries[static_cast<size_t>(root)];
    front().wait(fill_stream(), std::exchange(entry.late_ready, {}));
    if (entry.late) place_parameter(to, bucket, root, entry.late.data());
    entry.late.free_after(fill_stream());
    entry.late = {};
  }
  const device::Event there = bring(everybodys, to, bucket);
  if (offloaded) front().synchronize(there);
}

}  // namespace outrigger::engine

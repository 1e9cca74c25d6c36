// SPDX-License-Identifier: Apache-2.0
#include "core/engine/reduce_boundary.h"

#include <utility>

#include "core/base/error.h"

namespace outrigger::engine {

BoundaryReducer::BoundaryReducer(const ReduceContext& context,
                                 std::unique_ptr<comm::Exchange> exchange)
    : Reducer(context, std::move(exchange)),
      format_(context.config->accumulator),
      entries_(static_cast<size_t>(context.model->size())) {
  const int64_t bytes = context.side->accumulators;
  whole_ = make_window(bytes, memory::Purpose::accumulators, "gradient accumulators", entered_);
  if (context.offloaded()) {
    pinned_ = pinned({whole_->block(context.rank), static_cast<size_t>(bytes)});
  }
}

std::byte* BoundaryReducer::at(int64_t flat) const {
  return whole_->block(context_.rank) + bytes_of(flat - context_.side->flat, format_);
}

class BoundaryReducer::Sink final : public GradientSink {
 public:
  explicit Sink(BoundaryReducer& reducer) : reducer_(reducer), slots_(reducer.entries_.size()) {}
  void* slot(int64_t root, device::Stream stream) override {
    return reducer_.slot(slots_[static_cast<size_t>(root)], root, stream);
  }
  void add(int64_t root, const Gradient& gradient) override {
    reducer_.add(slots_[static_cast<size_t>(root)], root, gradient);
    contributed_ = true;
  }
  void end(bool abandoned) override { reducer_.end(slots_, abandoned && contributed_); }

 private:
  BoundaryReducer& reducer_;
  std::vector<Slot> slots_;
  std::atomic<bool> contributed_{false};
};

std::unique_ptr<GradientSink> BoundaryReducer::begin_pass() {
  return std::make_unique<Sink>(*this);
}

void* BoundaryReducer::slot(Slot& slot, int64_t root, device::Stream stream) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  const std::lock_guard lock(entry.mutex);
  if (slot.data != nullptr) slot_is_out(root);
  const bool in_place = format_ == compute() && !context_.offloaded();
  if (!entry.filled && !entry.lent && in_place) {
    entry.lent = true;
    slot.data = at(context_.layout->position(root).flat);
  } else {
    slot.scratch = scratch_for(root, slot_stream(stream));
    slot.data = slot.scratch.data();
  }
  return slot.data;
}

void BoundaryReducer::add(Slot& slot, int64_t root, const Gradient& gradient) {
  Entry& entry = entries_[static_cast<size_t>(root)];
  const std::lock_guard lock(entry.mutex);
  const bool is_slot = gradient.view.data == slot.data;
  if (is_slot) check_slot(root, gradient.view);
  if (is_slot && !slot.scratch) {
    entry.ready = rescale(slot.data, gradient);
    take_back(entry, root, true);
  } else if (entry.lent) {
    memory::Block made;  // what fails leaves the entry as it was
    if (!entry.waiting) made = scratch_for(root, gradient.stream);
    deposit(made ? made.data() : entry.waiting.data(), format_, static_cast<bool>(made), gradient,
            entry.waiting_ready);
    if (made) entry.waiting = std::move(made);
  } else {
    std::byte* const sum = at(context_.layout->position(root).flat);
    if (context_.offloaded()) {
      bring_down(sum, !entry.filled, gradient, entry.ready);
    } else {
      deposit(sum, format_, !entry.filled, gradient, entry.ready);
    }
    entry.filled = true;
  }
  if (is_slot) {
    slot.scratch.free_after(gradient.stream);
    slot = {};
  }
  mark_present(root);
}

void BoundaryReducer::bring_down(std::byte* to, bool first, const Gradient& gradient,
                                 device::Event& ready) {
  const int64_t count = gradient.view.count;
  const auto bytes = static_cast<size_t>(bytes_of(count, compute()));
  with_rounded(gradient, [&](const void* values) {
    if (first && format_ == compute()) {
      front().download(to, values, bytes, gradient.stream);
      ready = front().record(gradient.stream);
      return;
    }
    const memory::Block arrived(*context_.ledger, memory::Purpose::scratch,
                                static_cast<int64_t>(bytes));
    front().download(arrived.data(), values, bytes, gradient.stream);
    front().synchronize(gradient.stream);
    front().synchronize(std::exchange(ready, {}));
    if (first) {
      back().convert(to, format_, arrived.data(), compute(), 1, count, gradient.stream);
    } else {
      back().add(to, format_, arrived.data(), compute(), count, gradient.stream);
    }
  });
}

void BoundaryReducer::take_back(Entry& entry, int64_t root, bool filled) {
  std::byte* place = at(context_.layout->position(root).flat);
  const int64_t count = context_.model->at(root).count;
  if (entry.waiting) {  // both are in the back
    const device::Stream stream = back().own_stream();
    back().wait(stream, entry.ready);
    back().wait(stream, entry.waiting_ready);
    if (filled) {
      back().add(place, format_, entry.waiting.data(), format_, count, stream);
    } else {
      back().convert(place, format_, entry.waiting.data(), format_, 1, count, stream);
    }
    entry.ready = back().record(stream);
    entry.waiting.free_after(stream);
  }
  entry.filled = filled || entry.waiting;
  entry.waiting = {};
  entry.waiting_ready = {};
  entry.lent = false;
}

void BoundaryReducer::end(std::vector<Slot>& slots, bool discard) {
  if (discard) discard_ = true;
  for (size_t id = 0; id < slots.size(); ++id) {
    if (slots[id].data == nullptr) continue;
    const std::lock_guard lock(entries_[id].mutex);
    if (!slots[id].scratch) take_back(entries_[id], static_cast<int64_t>(id), false);
    slots[id] = {};
  }
}

void BoundaryReducer::zero_missing() {
  for (const layout::Bucket& bucket : context_.buckets()) {
    for (const int64_t id : bucket.parameters) {
      if (entries_[static_cast<size_t>(id)].filled) continue;
      const int64_t bytes = bytes_of(context_.model->at(id).count, format_);
      back().zero(at(context_.layout->position(id).flat), static_cast<size_t>(bytes),
                  back().own_stream());
    }
  }
}

void BoundaryReducer::begin_sums() {
  for (Entry& entry : entries_) {
    if (context_.offloaded()) {
      front().synchronize(entry.ready);
    } else {
      back().wait(back().own_stream(), entry.ready);
    }
    entry.ready = {};
  }
  zero_missing();
  for (const layout::Bucket& bucket : context_.buckets()) {
    const auto offset = static_cast<size_t>(bytes_of(bucket.begin - context_.side->flat, format_));
    exchange_->begin(reduction(bucket, *whole_, offset, format_, false, "reduce gradients"));
  }
}

std::byte* BoundaryReducer::gradient(const layout::Piece& piece) const { return at(piece.flat); }

void BoundaryReducer::on_clear() {
  for (Entry& entry : entries_) entry.filled = false;
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// The host's side: slots, contributions, launching. What runs in the background is in
// reduce_background.cpp.
#include "core/engine/reduce_micro_step.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace outrigger::engine {

using memory::Purpose;

MicroStepReducer::MicroStepReducer(const ReduceContext& context,
                                   std::unique_ptr<comm::Exchange> exchange)
    : Reducer(context, std::move(exchange)),
      compute_(context.config->compute),
      format_(context.config->accumulator),
      buffers_(context.side->bucket_buffers),
      produced_(buffers_),
      tickets_(buffers_) {
  const Side& side = *context.side;
  ring_ = make_window(side.ring, Purpose::buckets, "gradient buckets", ring_entered_);
  if (context.config->stage == 0) {
    whole_ = make_window(side.accumulators, Purpose::accumulators, "gradient accumulators",
                         whole_entered_);
  } else {
    shard_ = memory::Block(*context.ledger, Purpose::accumulators, side.accumulators, &back());
  }
  if (context.offloaded()) {
    pinned_ = pinned({ring_->block(context.rank), static_cast<size_t>(side.ring)});
    packing_ = memory::Block(*context.ledger, Purpose::buckets, side.packing, &front());
  }
  exchange_->start();
}

std::byte* MicroStepReducer::accumulator(int64_t flat, int64_t shard) const {
  return whole_ ? whole_->block(context_.rank) + bytes_of(flat - context_.side->flat, format_)
                : shard_.data() + bytes_of(shard - context_.side->shard, format_);
}

size_t MicroStepReducer::buffer_offset(uint64_t turn) const {
  return turn % buffers_ * static_cast<size_t>(context_.side->largest) * kernels::size_of(compute_);
}

std::byte* MicroStepReducer::buffer(uint64_t turn) const {
  return (packing_ ? packing_.data() : ring_->block(context_.rank)) + buffer_offset(turn);
}

// The buffer's last user was turn − buffers_: it must be folded here and read by everybody.
bool MicroStepReducer::is_free(uint64_t turn) const {
  if (turn < buffers_) return true;
  if (turns_begun_.load(std::memory_order_acquire) + buffers_ <= turn) return false;
  return exchange_->is_drained(tickets_[turn % buffers_].load(std::memory_order_relaxed));
}

// What this rank's device and sequence do by themselves is waited for, never another rank: that one
// may wait for this one in an acquire.
void MicroStepReducer::keep_near(uint64_t turn) {
  if (front().is_host() || is_free(turn)) return;
  if (context_.sums == nullptr) {
    // Two buckets of work keep the device busy.
    const uint64_t last = std::min(turn - 1, std::max(turn + 1 - buffers_, turn - 2));
    device::Event produced;
    {
      const std::lock_guard lock(launch_mutex_);
      if (turns_begun_ > last) produced = produced_[last % buffers_];
    }
    front().synchronize(produced);
  }
  const bool alone = context_.layout->world() == 1 && turns_begun_ + buffers_ > turn;
  while (alone && !is_free(turn)) {
    check();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

std::byte* MicroStepReducer::free_place(const Pass& pass, int64_t root) const {
  const layout::Position& position = context_.layout->position(root);
  const uint64_t turn = turn_of(pass, root);
  if (!is_free(turn)) return nullptr;
  const int64_t offset = position.flat - context_.layout->bucket(position.bucket).begin;
  return buffer(turn) + offset * static_cast<int64_t>(kernels::size_of(compute_));
}

class MicroStepReducer::Sink final : public GradientSink {
 public:
  Sink(MicroStepReducer& reducer, std::shared_ptr<Pass> pass)
      : reducer_(reducer), pass_(std::move(pass)) {}
  void* slot(int64_t root, device::Stream stream) override {
    return reducer_.slot(*pass_, root, stream);
  }
  void add(int64_t root, const Gradient& gradient) override {
    reducer_.add(*pass_, root, gradient);
  }
  void end(bool abandoned) override { reducer_.end(*pass_, abandoned); }

 private:
  MicroStepReducer& reducer_;
  std::shared_ptr<Pass> pass_;
};

std::unique_ptr<GradientSink> MicroStepReducer::begin_pass() {
  check();
  const auto buckets = context_.buckets();
  auto pass = std::make_shared<Pass>(static_cast<size_t>(context_.model->size()), buckets.size());
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (const int64_t root : buckets[b].parameters) {
      if (!context_.model->at(root).frozen) ++pass->missing[b];
    }
  }
  auto sink = std::make_unique<Sink>(*this, pass);
  pass->first_turn = next_turn_;
  pass->first_of_window = passes_in_window_ == 0;
  {
    const std::lock_guard lock(launch_mutex_);
    passes_.push_back(std::move(pass));
  }
  ++passes_in_window_;
  next_turn_ += buckets.size();
  launch_complete();  // buckets whose parameters are all frozen
  return sink;
}

void* MicroStepReducer::slot(Pass& pass, int64_t root, device::Stream stream) {
  Entry& entry = pass.entries[static_cast<size_t>(root)];
  keep_near(turn_of(pass, root));
  const std::lock_guard lock(entry.mutex);
  if (entry.slot != nullptr) slot_is_out(root);
  entry.slot = entry.value == nullptr ? free_place(pass, root) : nullptr;
  if (entry.slot == nullptr) {
    entry.slot_scratch = scratch_for(root, slot_stream(stream));
    entry.slot = entry.slot_scratch.data();
  } else {
    front().wait(stream, last_sum());
  }
  return entry.slot;
}

void MicroStepReducer::add(Pass& pass, int64_t root, const Gradient& gradient) {
  Entry& entry = pass.entries[static_cast<size_t>(root)];
  const layout::Parameter& parameter = context_.model->at(root);
  bool complete = false;
  keep_near(turn_of(pass, root));
  {
    const std::lock_guard lock(entry.mutex);
    const bool is_slot = gradient.view.data == entry.slot;
    if (is_slot) check_slot(root, gradient.view);
    // What fails leaves the entry as it was.
    const bool late = entry.contributions >= parameter.contributions;
    if (late) {
      memory::Block made;
      if (!entry.late) made = scratch_for(root, gradient.stream);
      deposit(made ? made.data() : entry.late.data(), compute_, static_cast<bool>(made), gradient,
              entry.late_ready);
      if (made) entry.late = std::move(made);
    } else {
      take(pass, entry, root, gradient, is_slot);
    }
    ++entry.contributions;
    if (is_slot) {
      entry.slot = nullptr;
      entry.slot_scratch.free_after(gradient.stream);
      entry.slot_scratch = {};
    }
    // While the host still writes into the buffer itself, the bucket cannot go out.
    const bool slot_in_buffer = entry.slot != nullptr && !entry.slot_scratch;
    complete = !entry.complete && !slot_in_buffer && entry.contributions >= parameter.contributions;
    entry.complete = entry.complete || complete;
    mark_present(root);
  }
  pass.contributed = true;
  if (complete && --pass.missing[static_cast<size_t>(index_of(root))] == 0) launch_complete();
}

void MicroStepReducer::take(const Pass& pass, Entry& entry, int64_t root, const Gradient& gradient,
                            bool is_slot) {
  if (entry.value != nullptr) {
    deposit(entry.value, compute_, false, gradient, entry.ready);
  } else if (is_slot) {
    entry.ready = rescale(entry.slot, gradient);
    entry.value = entry.slot;
    entry.scratch = std::move(entry.slot_scratch);
  } else {
    // A slot in the buffer may be out: then the buffer is not ours to write.
    const bool taken = entry.slot != nullptr && !entry.slot_scratch;
    std::byte* place = taken ? nullptr : free_place(pass, root);
    memory::Block made;
    if (place == nullptr) {
      made = scratch_for(root, gradient.stream);
      place = made.data();
    } else {
      entry.ready = last_sum();
    }
    deposit(place, compute_, true, gradient, entry.ready);
    entry.value = place;
    entry.scratch = std::move(made);
  }
}

void MicroStepReducer::launch_complete() {
  const std::lock_guard lock(launch_mutex_);
  const auto buckets = static_cast<int64_t>(context_.buckets().size());
  while (!passes_.empty()) {
    const std::shared_ptr<Pass> pass = passes_.front();
    while (next_bucket_ < buckets &&
           (pass->ended || pass->missing[static_cast<size_t>(next_bucket_)] == 0)) {
      begin_bucket(pass, next_bucket_++);
    }
    if (!pass->ended) return;
    begin_end(pass);
    passes_.pop_front();
    next_bucket_ = 0;
  }
}

void MicroStepReducer::end(Pass& pass, bool abandoned) {
  {
    const std::lock_guard lock(launch_mutex_);
    pass.ended = true;
    pass.abandoned = abandoned;
  }
  launch_complete();
}

void MicroStepReducer::on_clear() { passes_in_window_ = 0; }

void MicroStepReducer::list_movable(std::vector<Movable>& all) {
  list_window(all, Purpose::buckets, ring_, ring_entered_);
  list_window(all, Purpose::buckets, late_ring_, late_entered_);
  list_window(all, Purpose::accumulators, whole_, whole_entered_);
  if (!back().is_host()) {
    add_movable(all, OTR_STATES_GRADIENTS, Purpose::accumulators, shard_, false);
  }
  add_movable(all, OTR_STATES_GRADIENTS, Purpose::buckets, packing_, false);
  add_movable(all, OTR_STATES_GRADIENTS, Purpose::buckets, late_packing_, false);
}

}  // namespace outrigger::engine

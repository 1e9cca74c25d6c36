// SPDX-License-Identifier: Apache-2.0
// The host's side: slots, contributions, launching. The background side is in
// reduce_background.cpp.
#include "core/engine/reduce_micro_step.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/comm/wait.h"
#include "core/context/interrupt.h"

namespace outrigger::engine {

using memory::Purpose;

MicroStepReducer::MicroStepReducer(const ReduceContext& context,
                                   std::unique_ptr<comm::Communicator> comm)
    : Reducer(context),
      comm_(std::move(comm)),
      compute_(context.config->compute),
      format_(context.config->accumulator),
      whole_(context.config->stage == 0),
      buffers_(context.plan->bucket_buffers),
      norms_(context.layout->buckets().size()),
      tickets_(buffers_) {
  const Plan& plan = *context.plan;
  const auto create = [&](int64_t bytes, Purpose purpose, const char* label,
                          memory::Charge& charge) {
    auto window =
        comm_->create_window(comm::WindowKind::per_rank, static_cast<size_t>(bytes), label);
    charge = memory::Charge(*context.ledger, purpose, bytes, plan.back);
    return window;
  };
  ring_ = create(plan.ring, Purpose::buckets, "gradient buckets", ring_charge_);
  if (whole_) {
    whole_window_ =
        create(plan.accumulators, Purpose::accumulators, "gradient accumulators", whole_charge_);
  } else {
    shard_ = memory::Block(*context.ledger, Purpose::accumulators, plan.accumulators, &back());
  }
  if (context.devices.offloaded()) {
    pinned_ = device::Pinned(front(), ring_->block(comm_->rank()), static_cast<size_t>(plan.ring));
  }
  worker_.start();
}

std::byte* MicroStepReducer::accumulator(int64_t flat, int64_t shard) const {
  const auto size = static_cast<int64_t>(kernels::size_of(format_));
  return whole_ ? whole_window_->block(comm_->rank()) + flat * size : shard_.data() + shard * size;
}

size_t MicroStepReducer::buffer_offset(uint64_t turn) const {
  return turn % buffers_ * static_cast<size_t>(context_.layout->largest_bucket()) *
         kernels::size_of(compute_);
}

std::byte* MicroStepReducer::buffer(uint64_t turn) const {
  return ring_->block(comm_->rank()) + buffer_offset(turn);
}

std::byte* MicroStepReducer::free_place(const Pass& pass, int64_t root) const {
  const layout::Position& position = context_.layout->position(root);
  const uint64_t turn = pass.first_turn + static_cast<uint64_t>(position.bucket);
  if (turn >= buffers_) {
    // The buffer's last user was turn − buffers_: it must be folded here and read by everybody.
    if (turns_done_.load(std::memory_order_acquire) + buffers_ <= turn) return nullptr;
    if (!comm_->is_drained(tickets_[turn % buffers_].load(std::memory_order_acquire)))
      return nullptr;
  }
  const int64_t offset = position.flat - context_.layout->bucket(position.bucket).begin;
  return buffer(turn) + offset * static_cast<int64_t>(kernels::size_of(compute_));
}

class MicroStepReducer::Sink final : public GradientSink {
 public:
  Sink(MicroStepReducer& reducer, std::shared_ptr<Pass> pass)
      : reducer_(reducer), pass_(std::move(pass)) {}
  void* slot(int64_t root) override { return reducer_.slot(*pass_, root); }
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
  const auto& buckets = context_.layout->buckets();
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

void* MicroStepReducer::slot(Pass& pass, int64_t root) {
  Entry& entry = pass.entries[static_cast<size_t>(root)];
  const std::lock_guard lock(entry.mutex);
  if (entry.slot != nullptr) slot_is_out(root);
  const bool in_place = entry.value == nullptr && !context_.devices.offloaded();
  entry.slot = in_place ? free_place(pass, root) : nullptr;
  if (entry.slot == nullptr) {
    entry.slot_scratch = scratch_for(root, front());
    entry.slot = entry.slot_scratch.data();
  }
  return entry.slot;
}

void MicroStepReducer::add(Pass& pass, int64_t root, const Gradient& gradient) {
  Entry& entry = pass.entries[static_cast<size_t>(root)];
  const layout::Parameter& parameter = context_.model->at(root);
  bool complete = false;
  {
    const std::lock_guard lock(entry.mutex);
    const bool is_slot = gradient.view.data == entry.slot;
    if (is_slot) check_slot(root, gradient.view);
    // What fails leaves the entry as it was.
    const bool late = entry.contributions >= parameter.contributions;
    if (late) {
      memory::Block made;
      if (!entry.late) made = scratch_for(root, back());
      deposit(made ? made.data() : entry.late.data(), compute_, static_cast<bool>(made), gradient,
              entry.late_in_flight);
      if (made) entry.late = std::move(made);
    } else {
      take(pass, entry, root, gradient, is_slot);
    }
    ++entry.contributions;
    if (is_slot) {
      entry.slot = nullptr;
      InFlight& in_flight = late ? entry.late_in_flight : entry.in_flight;
      in_flight.keep(std::move(entry.slot_scratch), front());
    }
    // While the host still writes into the buffer itself, the bucket cannot go out.
    const bool slot_in_buffer = entry.slot != nullptr && !entry.slot_scratch;
    complete = !entry.complete && !slot_in_buffer && entry.contributions >= parameter.contributions;
    entry.complete = entry.complete || complete;
    mark_present(root);
  }
  pass.contributed = true;
  const auto bucket = static_cast<size_t>(context_.layout->position(root).bucket);
  if (complete && --pass.missing[bucket] == 0) launch_complete();
}

void MicroStepReducer::take(const Pass& pass, Entry& entry, int64_t root, const Gradient& gradient,
                            bool is_slot) {
  if (entry.value != nullptr) {
    deposit(entry.value, compute_, false, gradient, entry.in_flight);
  } else if (is_slot && !context_.devices.offloaded()) {
    entry.in_flight.ready = rescale(entry.slot, gradient);
    entry.value = entry.slot;
    entry.scratch = std::move(entry.slot_scratch);
  } else {
    // A slot in the buffer may be out: then the buffer is not ours to write.
    const bool taken = entry.slot != nullptr && !entry.slot_scratch;
    std::byte* place = taken ? nullptr : free_place(pass, root);
    memory::Block made;
    if (place == nullptr) {
      made = scratch_for(root, back());
      place = made.data();
    }
    deposit(place, compute_, true, gradient, entry.in_flight);
    entry.value = place;
    entry.scratch = std::move(made);
  }
}

void MicroStepReducer::launch_complete() {
  const std::lock_guard lock(launch_mutex_);
  const auto buckets = static_cast<int64_t>(context_.layout->buckets().size());
  while (!passes_.empty()) {
    const std::shared_ptr<Pass> pass = passes_.front();
    while (next_bucket_ < buckets &&
           (pass->ended || pass->missing[static_cast<size_t>(next_bucket_)] == 0)) {
      enqueue({pass, next_bucket_++});
    }
    if (!pass->ended) return;
    enqueue({pass, -1});
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

void MicroStepReducer::enqueue(Item item) {
  worker_.add([this, item = std::move(item)] { process(item); });
}

void MicroStepReducer::wait_idle() {
  const uint64_t all = worker_.added();
  while (!worker_.wait_for(all, comm::kSlice)) {
    if (interrupted(comm::Clock::now())) {
      fail(OTR_E_INTERRUPTED,
           "the wait for the background reduction of gradients was interrupted by the host of rank "
           "{}: {}. Make the call again to wait on",
           comm_->rank(), comm_->waiting());
    }
  }
}

Summed MicroStepReducer::finish() {
  wait_idle();
  Summed summed;
  for (const kernels::NormSum& norm : norms_) kernels::merge(summed.norm, norm);
  summed.origin = origin_;
  summed.discard = discard_;
  if (whole_) {
    const size_t size = kernels::size_of(format_);
    const auto& buckets = context_.layout->buckets();
    for (; buckets_gathered_ < buckets.size(); ++buckets_gathered_) {
      const layout::Bucket& bucket = buckets[buckets_gathered_];
      comm_->all_gather_window(*whole_window_, static_cast<size_t>(bucket.begin) * size,
                               static_cast<size_t>(bucket.slice) * size, "gather gradients");
    }
  }
  return summed;
}

std::byte* MicroStepReducer::gradient(const layout::Piece& piece) const {
  return accumulator(piece.flat, piece.shard);
}

void MicroStepReducer::on_clear() {
  passes_in_window_ = 0;
  buckets_gathered_ = 0;
  origin_ = {};
  discard_ = false;
  std::fill(norms_.begin(), norms_.end(), kernels::NormSum{});
}

// The thread may be waiting for ranks that will not come.
void MicroStepReducer::stop() noexcept {
  worker_.stop([this] { comm_->cancel(); });
}

}  // namespace outrigger::engine

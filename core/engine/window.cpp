// SPDX-License-Identifier: Apache-2.0
#include "core/engine/window.h"

#include <utility>

#include "core/comm/combine.h"

namespace outrigger::engine {

Window::Window(Declared& declared, Committed& committed, Run& run,
               std::unique_ptr<comm::Communicator> gradients)
    : declared_(declared),
      committed_(committed),
      run_(run),
      device_decision_(DeviceDecision::make(*committed.devices.front, committed.plan,
                                            declared.config.pin, declared.ledger)),
      reducer_(
          {committed.control.rank(), committed.control.slice(), &declared.model, &committed.layout,
           &declared.config, nullptr, &declared.ledger, committed.devices, committed.direct,
           device_decision_ ? &device_decision_->sums() : nullptr, &declared.timeline},
          committed.plan, std::move(gradients)) {}

std::unique_ptr<GradientSink> Window::begin_pass() {
  run_.mark();
  std::unique_ptr<GradientSink> sink = reducer_.begin_pass();
  if (!std::exchange(has_begun_, true)) declared_.ledger.touch_all();
  ++open_passes_;
  ++passes_in_step_;
  ++passes_;
  return sink;
}

void Window::require_no_pass(const char* call) const {
  if (open_passes_ > 0) {
    fail(OTR_E_STATE,
         "{}: a backward pass is open; end it with otr_pass_end (or give it up with "
         "otr_pass_destroy) first",
         call);
  }
}

void Window::require_not_reduced(const char* call) const {
  if (reduced_) {
    fail(OTR_E_STATE, "{}: otr_engine_reduce has closed this window; call otr_engine_step first",
         call);
  }
}

double Window::factor_for(const Tag& tag) const {
  const config::EngineConfig& config = declared_.config;
  const double accumulation = config.divide_at_step ? 1 : 1.0 / config.accumulation_steps;
  if (tag.loss_scale == 0) return run_.scaler.scale() * accumulation;
  if (tag.accumulation > 0 && config.divide_at_step) {
    fail(
        OTR_E_STATE,
        "these gradients were divided by {1} accumulation steps already, and this engine divides "
        "at the step (outrigger.accumulation_divisor \"{0}\"): use \"configured\" here, or \"{0}\" "
        "in the engine they come from, too",
        config.divide_by_counted ? "counted" : "configured_at_step", tag.accumulation);
  }
  const double ranks = tag.ranks == 0 ? 1 : static_cast<double>(mean_ranks()) / tag.ranks;
  return run_.scaler.scale() / tag.loss_scale * (tag.accumulation > 0 ? 1 : accumulation) * ranks;
}

Tag Window::tag_after(const Tag& tag) const {
  const config::EngineConfig& config = declared_.config;
  const int32_t own = config.divide_at_step ? 0 : config.accumulation_steps;
  return {run_.scaler.scale(), tag.accumulation > 0 ? tag.accumulation : own, mean_ranks()};
}

int32_t Window::mean_ranks() const { return declared_.config.average ? declared_.world : 1; }

void Window::note_stream(device::Stream stream) {
  if (!declared_.device) return;
  const std::lock_guard lock(stream_mutex_);
  if (callers_streams_.contains(stream)) return;
  static_cast<void>(declared_.device->record(stream));  // throws for a stream that there is not
  if (device_decision_) declared_.device->wait(stream, device_decision_->sent());
  callers_streams_.insert(stream);
}

void Window::come_after_callers(device::Stream stream) {
  if (!declared_.device) return;
  const std::lock_guard lock(stream_mutex_);
  for (const device::Stream other : callers_streams_) {
    if (other != stream) declared_.device->wait(stream, declared_.device->record(other));
  }
}

void Window::come_after_callers() {
  if (!declared_.device) return;
  come_after_callers(declared_.device->own_stream());
  come_after_callers(declared_.device->upload_stream());
}

void Window::await_streams() {
  if (!declared_.device) return;
  device::Device& device = *declared_.device;
  const std::lock_guard lock(stream_mutex_);
  for (const device::Stream stream : callers_streams_) {
    const device::Event done = device.record(stream);
    device.wait(device.own_stream(), done);
    if (committed_.plan.offloaded()) device.wait(device.upload_stream(), done);
  }
  callers_streams_.clear();
}

void Window::require_step(const char* call) const {
  if (passes_in_step_ == 0) {
    fail(OTR_E_STATE,
         "{}: no backward pass was made since the last step; a rank without data begins and ends "
         "an empty pass",
         call);
  }
}

void Window::accumulate() {
  passes_in_step_ = 0;
  ++steps_;
}

// Phase 1 does everything that can fail and changes nothing: reduce, agree on Inf/NaN and on the
// norm. Parameters may have been acquired since otr_engine_reduce.
void Window::sum(bool updates) {
  if (updates || !reduced_) committed_.gather.settle();  // after an interrupt nothing is agreed on
  if (!reduced_) agree_on_window();
  if (updates || !reduced_) {  // nobody reads the weights from here on
    await_streams();
    committed_.gather.end_all();
  }
  // By the decision that there is the host has updated them.
  if (updates && declared_.config.optimizer.host) return;
  if (!reduced_) reduced_ = Reduced{};
  if (reduced_->summed) return;
  reduced_->mine = reducer_.finish();
  reduced_->summed = true;
}

const Decision& Window::reduce(bool updates) {
  const observe::Span span(&declared_.timeline, observe::Phase::reduce);
  sum(updates);
  if (updates && declared_.config.optimizer.host) return reduced_->decision;
  if (reduced_->replaced) {
    reduced_->mine.norm = committed_.counts ? reducer_.norm() : kernels::NormSum{};
    reduced_->mine.origin = {reduced_->mine.norm.first_nonfinite, -1};
    reduced_->replaced = false;
  } else if (device_decision_ && !reduced_->has_norm) {
    device_decision_->decide({.mean = 1, .clipping = 0, .skip = 0, .skip_nonfinite = 0});
    device_decision_->send();
    const device::Decided there = device_decision_->wait();
    reduced_->mine.norm = there.total;
    reduced_->mine.origin = there.origin;
  }
  reduced_->has_norm = true;
  Decision decision = agree_on_gradients(reduced_->mine);
  reduced_->stands = decision.updated;
  if (!decision.updated) reduced_->decision = std::move(decision);
  reduced_->agreed_once = true;
  return reduced_->decision;
}

const Decision* Window::decision() const { return reduced_ ? &reduced_->decision : nullptr; }

void Window::set_agreed(bool agreed) {
  if (reduced_) reduced_->agreed = agreed;
}

bool Window::is_updated(const Decision& decision, int64_t root) const {
  if (declared_.model.at(root).frozen) return false;
  return declared_.config.unused == config::Unused::zero || decision.present[root];
}

bool Window::has_grad(const layout::Parameter& root) const {
  if (!reduced_) {
    fail(OTR_E_STATE,
         "otr_engine_has_grad: which parameters have a gradient is known between otr_engine_reduce "
         "and otr_engine_step");
  }
  if (!root.trainable) return false;
  return is_updated(reduced_->decision, root.root) || reducer_.is_present(root.root);
}

void Window::note_replaced(int64_t root) {
  reduced_->replaced = true;
  reducer_.mark_present(root);
}

void Window::note_written() {
  if (reduced_) reduced_->updated = true;
}

// The step of an engine whose weights the host has updated.
void Window::require_reduced(const char* call) const {
  if (reduced_) return;
  fail(OTR_E_STATE,
       "{}: with optimizer.type \"Host\" the weights are updated before the step that ends a "
       "window: call otr_engine_reduce, then write OTR_VALUE_MASTER, then step",
       call);
}

void Window::require_updatable(const char* call) const {
  if (reduced_->decision.skip == OTR_SKIP_NONE) return;
  fail(OTR_E_STATE,
       "{}: the update of this window is skipped on all ranks (reason {} in the report of "
       "otr_engine_reduce): leave the weights, and call otr_engine_step",
       call, reduced_->decision.skip);
}

void refuse_updated(const char* call) {
  fail(OTR_E_STATE,
       "{}: after the last otr_engine_reduce of this window a rank has written weights: call "
       "otr_engine_step",
       call);
}

void Window::list_movable(std::vector<Movable>& all) {
  reducer_.list_movable(all);
  if (device_decision_) device_decision_->list_movable(all);
}

bool Window::drop() {
  if (reduced_ && reduced_->summed) {
    if (!declared_.config.optimizer.host) return false;
    return comm::any(committed_.control, reduced_->updated, "drop a window");
  }
  if (!reduced_) agree_on_window();
  await_streams();
  // What is being copied is dropped, too.
  if (declared_.device) declared_.device->synchronize(declared_.device->own_stream());
  if (!reduced_) reduced_ = Reduced{};
  // In the micro-step order ranks have begun to sum them.
  if (declared_.config.order == config::Order::micro_step) static_cast<void>(reducer_.finish());
  return false;
}

void Window::clear() {
  reducer_.clear();
  reduced_.reset();
  seed_overflow_ = false;
  passes_ = steps_ = passes_in_step_ = 0;
}

}  // namespace outrigger::engine

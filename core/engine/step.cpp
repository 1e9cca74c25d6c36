// SPDX-License-Identifier: Apache-2.0
// Passes and steps. A step is collective in two phases: phase 1 does everything that can fail and
// changes nothing (window.h); phase 2 updates the owned pieces in place and publishes (update.h).
#include <optional>
#include <utility>

#include "core/engine/engine.h"
#include "core/engine/log.h"
#include "core/engine/pass.h"
#include "core/optimizer/schedule.h"

namespace outrigger::engine {

void Engine::report_decision(otr_step_report& report, const Decision& decision) {
  report.reason = decision.skip;
  report.grad_norm = decision.norm;
  report.clip_coefficient = decision.clip;
  report.nonfinite_param = decision.nonfinite_param;
  report.nonfinite_rank = decision.nonfinite_rank;
  report.nonfinite_count = decision.nonfinite_count;
}

std::shared_ptr<Pass> Engine::begin_pass(const otr_tensor* output_grads, int64_t count,
                                         const Tag& tag, bool keep_dtype, device::Stream stream) {
  constexpr const char* kCall = "otr_pass_begin";
  require(State::committed, kCall);
  require_here(OTR_STATES_GRADIENTS, kCall);
  window_->require_not_reduced(kCall);
  check();
  return health_.on_device([&] {
    return std::make_shared<Pass>(
        Pass::Owner{shared_from_this(), declared_, health_, *window_, live_passes_}, output_grads,
        count, tag, keep_dtype, stream);
  });
}

bool Engine::at_boundary() const {
  return is_boundary(declared_.config, run_, window_ ? window_->steps() : 0);
}

void Engine::set_boundary(int32_t boundary) {
  health_.require("otr_engine_set_boundary");
  if (boundary < OTR_BOUNDARY_CONFIGURED || boundary > OTR_BOUNDARY_YES) {
    fail(OTR_E_ARGUMENT,
         "boundary = {}; legal is OTR_BOUNDARY_CONFIGURED ({}), OTR_BOUNDARY_NO ({}) or "
         "OTR_BOUNDARY_YES ({})",
         boundary, static_cast<int>(OTR_BOUNDARY_CONFIGURED), static_cast<int>(OTR_BOUNDARY_NO),
         static_cast<int>(OTR_BOUNDARY_YES));
  }
  run_.boundary = boundary;
}

void Engine::require_step(const char* call) {
  require(State::committed, call);
  require_here(kAllOfIt, call);
  window_->require_no_pass(call);
  check();
  window_->require_step(call);
}

void Engine::report_counts(otr_step_report& report) const {
  const config::OptimizerConfig& group = declared_.groups[0];
  report.loss_scale = run_.scaler.scale();
  report.lr = optimizer::scheduled_lr(group.schedule, run_.applied_steps, group.lr);
  report.micro_steps = run_.micro_steps;
  report.applied_steps = run_.applied_steps;
  report.skipped_steps = run_.skipped_steps;
}

void Engine::reduce(otr_step_report& report) {
  constexpr const char* kCall = "otr_engine_reduce";
  require_step(kCall);
  hear();
  if (!at_boundary()) {
    fail(OTR_E_STATE,
         "otr_engine_reduce: the next step is number {} of {} in its accumulation window, and "
         "gradients are complete at the last: call otr_engine_step",
         window_->steps() + 1, declared_.config.accumulation_steps);
  }
  health_.collective(kCall, Again::always,
                     [&] { report_decision(report, window_->reduce(false)); });
  if (window_->decision_stands()) refuse_updated(kCall);
  report.outcome = OTR_STEP_REDUCED;
  report_counts(report);
}

void Engine::step(otr_step_report& report, bool wants_report) {
  require_step("otr_engine_step");
  const bool accumulates = !at_boundary();
  do_step(report, wants_report);
  if (wants_report) return;
  if (!unheard_) {
    kept_ = report;
  } else if (accumulates) {
    unheard_->next = report;
  }
}

void Engine::do_step(otr_step_report& report, bool wants_report) {
  run_.mark();
  if (!at_boundary()) {
    if (wants_report) hear();
    run_.stuck_at_minimum = false;
    ++run_.micro_steps;
    window_->accumulate();
    report.outcome = OTR_STEP_ACCUMULATED;
    report.clip_coefficient = 1;
    report.nonfinite_param = report.nonfinite_rank = -1;
    report_counts(report);
    return;
  }
  constexpr const char* kCall = "otr_engine_step";
  if (declared_.config.optimizer.host) window_->require_reduced(kCall);
  if (window_->device_decides()) {
    health_.collective(kCall, Again::always, [&] {
      const observe::Span span(&declared_.timeline, observe::Phase::reduce);
      window_->sum(true);
    });
    health_.collective(kCall, Again::never, [&] {
      step_there();
      if (!wants_report) return;
      const std::optional<otr_step_report> kept = kept_;
      hear();
      report = *std::exchange(kept_, kept);
    });
    return;
  }
  Decision decision;
  health_.collective(kCall, Again::always, [&] { decision = window_->reduce(true); });
  health_.collective(kCall, Again::never, [&] { finish_step(report, decision); });
}

void Engine::begin_step() {
  require_step("otr_engine_step_begin");
  if (!pending_) {
    pending_ = std::make_unique<PendingStep>([this](auto& report) {
      struct Ending {
        NewWeights& weights;
        ~Ending() { weights.end(); }
      } const ending{new_weights_};
      do_step(report, true);
    });
  }
  // From here on it is the step's thread that writes reports.
  const std::optional<otr_step_report> kept = std::exchange(kept_, std::nullopt);
  new_weights_.begin(model().size());
  try {
    pending_->begin();
  } catch (...) {
    new_weights_.end();
    kept_ = kept;
    throw;
  }
  health_.is_pending = true;
}

// Phase 2, and the end of the window. decision: its own, or that of a joint step.
void Engine::finish_step(otr_step_report& report, const Decision& decision) {
  report_decision(report, decision);
  report_counts(report);  // the loss scale of this window
  // Its own norm, not that of a joint step, and only of whole windows.
  if (decision.skip == OTR_SKIP_NONE || decision.skip == OTR_SKIP_OUTLIER ||
      decision.skip == OTR_SKIP_JOINT) {
    run_.outliers.note(window_->decision()->norm);
  }
  if (decision.skip == OTR_SKIP_NONE) {
    const kernels::UpdateCount mine =
        declared_.config.optimizer.host ? kernels::UpdateCount{} : updater_->update(decision);
    const kernels::UpdateCount counts = updater_->publish(mine);
    values_->note_published();
    report.updates = counts.updates;
    report.vanished = counts.vanished;
  }
  window_->clear();
  report.micro_steps = ++run_.micro_steps;
  conclude(report, decision.skip);
}

// What the run has of a step that is over.
void Engine::conclude(otr_step_report& report, int32_t skip) {
  bool scalable = true;
  if (skip == OTR_SKIP_NONE) {
    report.outcome = OTR_STEP_APPLIED;
    ++run_.applied_steps;
    scalable = run_.scaler.update(false);
  } else {
    report.outcome = OTR_STEP_SKIPPED;
    ++run_.skipped_steps;
    const bool overflow = skip == OTR_SKIP_NONFINITE || skip == OTR_SKIP_SEED_OVERFLOW;
    if (overflow) scalable = run_.scaler.update(true);
  }
  report.applied_steps = run_.applied_steps;
  report.skipped_steps = run_.skipped_steps;
  run_.stuck_at_minimum = !scalable;
  log_step(declared_, report, run_.scaler.scale());
  watch_.record(report);
}

void Engine::require_scalable() const {
  if (!run_.stuck_at_minimum) return;
  fail(OTR_E_LOSS_SCALE,
       "gradients overflow at the smallest loss scale, {}: a smaller one is not allowed "
       "(fp16.min_loss_scale). The window was skipped and the engine can go on; look for the Inf "
       "or NaN in the model, lower the learning rate, or use bf16",
       run_.scaler.scale());
}

bool Engine::has_grad(int64_t id) const {
  require(State::committed, "otr_engine_has_grad");
  return window_->has_grad(model().root(id));
}

void Engine::discard() {
  constexpr const char* kCall = "otr_engine_discard";
  require(State::committed, kCall);
  require_here(OTR_STATES_GRADIENTS, kCall);
  window_->require_no_pass(kCall);
  check();
  hear();
  bool stands = false;
  health_.collective(kCall, Again::always, [&] { stands = window_->drop(); });
  if (stands) refuse_updated(kCall);
  window_->clear();
}

}  // namespace outrigger::engine

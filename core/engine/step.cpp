// SPDX-License-Identifier: Apache-2.0
// Passes and steps. A step is collective in two phases: phase 1 does everything that can fail and
// changes nothing (window.h); phase 2 updates the owned pieces in place and publishes (update.h).
#include <cmath>
#include <optional>

#include <xxhash.h>

#include "core/comm/combine.h"
#include "core/comm/verdict.h"
#include "core/engine/engine.h"
#include "core/engine/log.h"
#include "core/engine/pass.h"
#include "core/optimizer/schedule.h"

namespace outrigger::engine {
namespace {

void report_decision(otr_step_report& report, const Decision& decision) {
  report.reason = decision.skip;
  report.grad_norm = decision.norm;
  report.clip_coefficient = decision.clip;
  report.nonfinite_param = decision.nonfinite_param;
  report.nonfinite_rank = decision.nonfinite_rank;
  report.nonfinite_count = decision.nonfinite_count;
}

constexpr const char* kSetProgress = "otr_engine_set_progress";

}  // namespace

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

void Engine::step(otr_step_report& report) {
  require_step("otr_engine_step");
  do_step(report);
}

void Engine::do_step(otr_step_report& report) {
  if (!at_boundary()) {
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
  Decision decision;
  health_.collective(kCall, Again::always, [&] { decision = window_->reduce(true); });
  health_.collective(kCall, Again::never, [&] { finish_step(report, decision); });
}

void Engine::begin_step() {
  require_step("otr_engine_step_begin");
  if (!pending_)
    pending_ = std::make_unique<PendingStep>([this](auto& report) { do_step(report); });
  pending_->begin();
  health_.is_pending = true;
}

bool Engine::report(double seconds, otr_step_report& report) {
  if (!pending_) {
    fail(OTR_E_STATE,
         "otr_engine_report: no step was begun: call otr_engine_step_begin, or otr_engine_step, "
         "which gives its report itself");
  }
  if (std::isnan(seconds)) fail(OTR_E_ARGUMENT, "timeout_seconds is not a number");
  const auto waiting = [this] {
    const std::string text = control_ ? control_->waiting() : "";
    return text.empty() ? text : ", in which " + text;
  };
  if (!pending_->wait(seconds, waiting)) {
    report.outcome = OTR_STEP_PENDING;
    return false;
  }
  health_.is_pending = false;
  report = pending_->result();
  return true;
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
  bool scalable = true;
  if (decision.skip == OTR_SKIP_NONE) {
    const kernels::UpdateCount mine =
        declared_.config.optimizer.host ? kernels::UpdateCount{} : updater_->update(decision);
    const kernels::UpdateCount counts = updater_->publish(mine);
    values_->note_published();
    report.updates = counts.updates;
    report.vanished = counts.vanished;
    report.outcome = OTR_STEP_APPLIED;
    ++run_.applied_steps;
    scalable = run_.scaler.update(false);
  } else {
    report.outcome = OTR_STEP_SKIPPED;
    ++run_.skipped_steps;
    const bool overflow =
        decision.skip == OTR_SKIP_NONFINITE || decision.skip == OTR_SKIP_SEED_OVERFLOW;
    if (overflow) scalable = run_.scaler.update(true);
  }
  window_->clear();
  ++run_.micro_steps;
  report.micro_steps = run_.micro_steps;
  report.applied_steps = run_.applied_steps;
  report.skipped_steps = run_.skipped_steps;
  run_.stuck_at_minimum = !scalable;
  log_step(declared_, report, run_.scaler.scale());
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
  bool stands = false;
  health_.collective(kCall, Again::always, [&] { stands = window_->drop(); });
  if (stands) refuse_updated(kCall);
  window_->clear();
}

// Progress: gradients of a half-finished window are no part of it.
void Engine::require_between_windows(const char* call) const {
  require(State::committed, call);
  window_->require_no_pass(call);
  if (window_->is_empty()) return;
  fail(OTR_E_STATE,
       "{}: {} passes of this window were taken already, and gradients are no part of a progress: "
       "end the window with otr_engine_step, or drop it with otr_engine_discard",
       call, window_->passes());
}

Progress Engine::progress() const {
  require_between_windows("otr_engine_get_progress");
  return progress_of(declared_, run_, committed_->groups());
}

// Whoever cannot set it tells the others instead of leaving them waiting.
void Engine::agree_on_progress(std::string_view json, const std::optional<Error>& trouble) {
  struct Facts {
    comm::Compared<uint64_t> text;
    comm::FirstVerdict verdict;
  };
  const uint64_t hash = XXH3_64bits(json.data(), json.size());
  const int32_t rank = control_->rank();
  Facts facts{{hash, hash, rank}, {}};
  if (trouble) facts.verdict.set(rank, trouble->status(), trouble->what());
  const auto merge = [](Facts& into, const Facts& from) {
    comm::merge(into.text, from.text);
    comm::merge_first(into.verdict, from.verdict);
  };
  health_.collective(
      kSetProgress, Again::at_first,
      [&] { comm::combine_value(*control_, facts, merge, "set the progress"); }, hash);
  if (trouble) throw Error(*trouble);
  if (facts.verdict.rank >= 0) {
    fail(OTR_E_ABORTED, "{}: rank {} could not, so no rank has: {}", kSetProgress,
         facts.verdict.rank, std::string_view(facts.verdict.verdict.text));
  }
  if (facts.text.rank >= 0) {
    fail(OTR_E_MISMATCH, "{}: rank 0 and rank {} set different ones: every rank sets the same text",
         kSetProgress, facts.text.rank);
  }
}

void Engine::set_progress(std::string_view json) {
  require_between_windows(kSetProgress);
  // All that can be refused comes before anything is changed.
  std::optional<Resumed> read;
  std::optional<Error> trouble;
  try {
    read = read_progress(json, declared_, Names(declared_.model));
  } catch (const Error& error) {
    trouble = error;
  }
  agree_on_progress(json, trouble);
  resume(std::move(*read), declared_, run_, committed_->groups());
}

}  // namespace outrigger::engine

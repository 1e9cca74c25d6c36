// SPDX-License-Identifier: Apache-2.0
// A host ahead of its step: one that the device decides, given to it without a wait, and when the
// host hears of that; what may come while one is pending; the reports of both.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/comm/wait.h"
#include "core/context/interrupt.h"
#include "core/engine/engine.h"

namespace outrigger::engine {

// Phase 2 where the device decides: all of it is given to the device.
void Engine::step_there() {
  hear();
  Unheard step;
  report_counts(step.report);
  DeviceDecision& there = window_->device_decision();
  step.decision = window_->decide_there();
  step.roots = updater_->updated_by(step.decision);
  if (step.decision.skip == OTR_SKIP_NONE) updater_->update_there(step.decision, there);
  there.send();
  window_->clear();
  watch_.close_window();
  step.report.micro_steps = ++run_.micro_steps;
  unheard_ = std::move(step);
}

void Engine::hear() {
  if (!unheard_) return;
  Unheard step = std::move(*unheard_);
  unheard_.reset();
  const device::Decided there =
      health_.on_device([&] { return window_->device_decision().wait(); });
  window_->complete(step.decision, there);
  report_decision(step.report, step.decision);
  if (step.decision.skip == OTR_SKIP_NONE) {
    values_->note_published();
    updater_->count_updates(step.roots);
    step.report.updates = there.count.updates;
    step.report.vanished = there.count.vanished;
  }
  conclude(step.report, step.decision.skip);
  kept_ = step.next.value_or(step.report);
  kept_->applied_steps = run_.applied_steps;
  kept_->skipped_steps = run_.skipped_steps;
}

bool Engine::has_heard_within(double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = comm::deadline_in(seconds < 0 ? HUGE_VAL : seconds);
  while (!health_.on_device([&] { return window_->device_decision().has_come(); })) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return false;
    if (interrupted(now)) {
      fail(OTR_E_INTERRUPTED,
           "otr_engine_report was interrupted while it waited for the device. The step goes on: "
           "call it again");
    }
    std::this_thread::sleep_for(
        std::min<Clock::duration>(deadline - now, std::chrono::microseconds(200)));
  }
  hear();
  return true;
}

void Engine::require_new(const char* call, const int64_t* ids, int64_t count) {
  if (!health_.is_pending) return require(State::committed, call);
  std::vector<int64_t> roots;
  for (int64_t i = 0; i < count; ++i) roots.push_back(model().at(ids[i]).root);
  const NewWeights::Step step = new_weights_.wait(roots, call, [this] { return waiting(); });
  if (step == NewWeights::Step::is_over) health_.require_before_report(call);
}

std::string Engine::waiting() const {
  const std::string text = control_ ? control_->waiting() : "";
  return text.empty() ? text : ", in which " + text;
}

bool Engine::report(double seconds, otr_step_report& report) {
  if (std::isnan(seconds)) fail(OTR_E_ARGUMENT, "timeout_seconds is not a number");
  if (!health_.is_pending && unheard_) {
    health_.require("otr_engine_report");
    if (!has_heard_within(seconds)) {
      report.outcome = OTR_STEP_PENDING;
      return false;
    }
  }
  if (!health_.is_pending && kept_) {
    report = *kept_;
    return true;
  }
  if (!pending_) {
    fail(OTR_E_STATE,
         "otr_engine_report: no step was begun: call otr_engine_step_begin, or otr_engine_step "
         "with NULL for its report");
  }
  if (!pending_->wait(seconds, [this] { return waiting(); })) {
    report.outcome = OTR_STEP_PENDING;
    return false;
  }
  health_.is_pending = false;
  report = pending_->result();
  return true;
}

}  // namespace outrigger::engine

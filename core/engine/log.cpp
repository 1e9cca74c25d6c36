// SPDX-License-Identifier: Apache-2.0
// What an engine tells the host's log, beside what its calls return.
#include "core/base/text.h"
#include "core/engine/engine.h"

namespace outrigger::engine {
namespace {

const char* reason_of(const otr_step_report& report) {
  switch (report.reason) {
    case OTR_SKIP_NONFINITE:
      return "a gradient is Inf or NaN";
    case OTR_SKIP_SEED_OVERFLOW:
      return "an output gradient overflowed when it was scaled";
    case OTR_SKIP_ABANDONED:
      return "a pass was given up";
    case OTR_SKIP_OUTLIER:
      return "the norm of the gradient is an outlier";
    default:
      return "another engine of the joint step skipped";
  }
}

}  // namespace

void Engine::log_commit() const {
  if (!context_->logs(OTR_LOG_INFO)) return;
  int64_t elements = 0;
  for (int64_t id = 0; id < model_.size(); ++id) {
    if (model_.at(id).root == id) elements += model_.at(id).count;
  }
  const memory::Entry total = ledger_.entries().back();
  context_->log(
      OTR_LOG_INFO,
      format_text(
          "rank {} of {} over {}: an engine of {} parameters, {} elements, ZeRO stage "
          "{}, {} workers; {} bytes of host memory, peak so far {} (blocks not touched yet are "
          "not counted)",
          control_->rank(), control_->size(), control_->provider(), model_.size(), elements,
          config_.stage, workers_->size(), total.resident, total.peak));
}

void Engine::log_step(const otr_step_report& report) const {
  if (report.outcome == OTR_STEP_SKIPPED && context_->logs(OTR_LOG_INFO)) {
    std::string where;
    if (report.nonfinite_param >= 0) {
      where = format_text(" ('{}' is the first)", model_.at(report.nonfinite_param).name);
    }
    if (report.nonfinite_rank >= 0) where += format_text(" on rank {}", report.nonfinite_rank);
    context_->log(OTR_LOG_INFO,
                  format_text("step {} was skipped: {}{}; the loss scale was {} and is {}",
                              report.micro_steps, reason_of(report), where, report.loss_scale,
                              scaler_.scale()));
  }
  if (report.outcome == OTR_STEP_APPLIED && context_->logs(OTR_LOG_DEBUG)) {
    context_->log(OTR_LOG_DEBUG,
                  format_text("step {}: gradient norm {}, clipped by {}, learning rate {}, "
                              "loss scale {}",
                              report.micro_steps, report.grad_norm, report.clip_coefficient,
                              report.lr, report.loss_scale));
  }
}

void Engine::log_failure(const Error& error) const noexcept {
  try {
    context_->log(OTR_LOG_ERROR,
                  format_text("the engine has failed and can only be destroyed: {}", error.what()));
  } catch (...) {  // no memory for a line; the failure itself is kept
  }
}

}  // namespace outrigger::engine

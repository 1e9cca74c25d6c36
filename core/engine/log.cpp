// SPDX-License-Identifier: Apache-2.0
#include "core/engine/log.h"

#include "core/base/text.h"

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

void log_commit(const Declared& declared, const Committed& committed) {
  if (!declared.context->logs(OTR_LOG_INFO)) return;
  int64_t elements = 0;
  for (int64_t id = 0; id < declared.model.size(); ++id) {
    if (declared.model.at(id).root == id) elements += declared.model.at(id).count;
  }
  const memory::Entry total = declared.ledger.entries().back();
  declared.context->log(
      OTR_LOG_INFO,
      format_text(
          "rank {} of {} over {}: an engine of {} parameters, {} elements, ZeRO stage "
          "{}, {} workers; {} bytes of host memory, peak so far {} (blocks not touched yet are "
          "not counted)",
          committed.control.rank(), committed.control.size(), committed.control.provider(),
          declared.model.size(), elements, declared.config.stage, committed.workers.size(),
          total.resident, total.peak));
}

void log_step(const Declared& declared, const otr_step_report& report, double scale) {
  if (report.outcome == OTR_STEP_SKIPPED && declared.context->logs(OTR_LOG_INFO)) {
    std::string where;
    if (report.nonfinite_param >= 0) {
      where = format_text(" ('{}' is the first)", declared.model.at(report.nonfinite_param).name);
    }
    if (report.nonfinite_rank >= 0) where += format_text(" on rank {}", report.nonfinite_rank);
    declared.context->log(
        OTR_LOG_INFO,
        format_text("step {} was skipped: {}{}; the loss scale was {} and is {}",
                    report.micro_steps, reason_of(report), where, report.loss_scale, scale));
  }
  if (report.outcome == OTR_STEP_APPLIED && declared.context->logs(OTR_LOG_DEBUG)) {
    declared.context->log(OTR_LOG_DEBUG,
                          format_text("step {}: gradient norm {}, clipped by {}, learning rate {}, "
                                      "loss scale {}",
                                      report.micro_steps, report.grad_norm, report.clip_coefficient,
                                      report.lr, report.loss_scale));
  }
}

void log_save(const Declared& declared, const SaveReport& report) noexcept {
  try {
    if (!report.failure.empty()) {
      declared.context->log(OTR_LOG_ERROR,
                            format_text("the asynchronous save of checkpoint \"{}\" failed: {}",
                                        printable(report.tag), report.failure));
    } else if (declared.context->logs(OTR_LOG_INFO)) {
      declared.context->log(
          OTR_LOG_INFO,
          format_text("checkpoint \"{}\" is durable: this rank's {} bytes took {} s, {} MB/s; the "
                      "training waited {} s for their copy",
                      printable(report.tag), report.bytes, report.seconds,
                      static_cast<double>(report.bytes) / report.seconds / 1e6, report.held_up));
    }
  } catch (...) {  // no memory for a line; the engine tells its caller of the failure
  }
}

void log_failure(const Declared& declared, const Error& error) noexcept {
  try {
    declared.context->log(
        OTR_LOG_ERROR,
        format_text("the engine has failed and can only be destroyed: {}", error.what()));
  } catch (...) {  // no memory for a line; the failure itself is kept
  }
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// The step that otr_engine_step_begin begins and otr_engine_report asks for.
#include "core/engine/pending.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/comm/wait.h"
#include "core/context/interrupt.h"
#include "core/engine/engine.h"
#include "core/threads/thread.h"

namespace outrigger::engine {

void PendingStep::begin() {
  if (!thread_.joinable()) thread_ = start_thread("a pending step", [this] { serve(); });
  {
    const std::lock_guard lock(mutex_);
    running_ = true;
    report_ = {};
    failure_ = nullptr;
  }
  wake_.notify_one();
}

void PendingStep::serve() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || running_; });
    if (!running_) return;
    lock.unlock();
    otr_step_report report{};
    std::exception_ptr failure;
    try {
      step_(report);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    report_ = report;
    failure_ = failure;
    running_ = false;
    over_.notify_all();
  }
}

bool PendingStep::wait(double seconds, const std::function<std::string()>& waiting) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = comm::deadline_in(seconds < 0 ? HUGE_VAL : seconds);
  std::unique_lock lock(mutex_);
  while (running_) {
    const auto now = Clock::now();
    if (now >= deadline) return false;
    lock.unlock();
    if (interrupted(now)) {
      fail(
          OTR_E_INTERRUPTED,
          "otr_engine_report was interrupted while it waited for the pending step{}. The step goes "
          "on: call it again",
          waiting());
    }
    lock.lock();
    over_.wait_for(lock, std::min<Clock::duration>(deadline - now, comm::kSlice),
                   [this] { return !running_; });
  }
  return true;
}

const otr_step_report& PendingStep::result() {
  const std::lock_guard lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return report_;
}

void PendingStep::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Engine::begin_step() {
  require_step("otr_engine_step_begin");
  if (!pending_)
    pending_ = std::make_unique<PendingStep>([this](auto& report) { do_step(report); });
  pending_->begin();
  is_pending_ = true;
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
  is_pending_ = false;
  report = pending_->result();
  return true;
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// The step that otr_engine_step_begin begins and otr_engine_report asks for.
#include "core/engine/pending.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/error.h"
#include "core/comm/wait.h"
#include "core/context/interrupt.h"

namespace outrigger::engine {

void PendingStep::begin() {
  number_ = worker_.add([this] {
    report_ = {};
    failure_ = nullptr;
    try {
      step_(report_);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

bool PendingStep::wait(double seconds, const std::function<std::string()>& waiting) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = comm::deadline_in(seconds < 0 ? HUGE_VAL : seconds);
  for (;;) {
    const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
    if (worker_.wait_for(number_, std::min<Clock::duration>(left, comm::kSlice))) return true;
    const auto now = Clock::now();
    if (now >= deadline) return false;
    if (interrupted(now)) {
      fail(
          OTR_E_INTERRUPTED,
          "otr_engine_report was interrupted while it waited for the pending step{}. The step goes "
          "on: call it again",
          waiting());
    }
  }
}

const otr_step_report& PendingStep::result() {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return report_;
}

void PendingStep::stop() noexcept {
  while (!worker_.wait_for(number_, comm::kSlice)) {
  }
  worker_.stop();
}

}  // namespace outrigger::engine

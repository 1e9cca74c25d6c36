// SPDX-License-Identifier: Apache-2.0
// A step beside the host: on a thread that starts with the first one and sleeps between two.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "core/base/serial_worker.h"
#include "outrigger.h"

namespace outrigger::engine {

class PendingStep {
 public:
  using Step = std::function<void(otr_step_report&)>;

  explicit PendingStep(Step step) : step_(std::move(step)), worker_("a pending step") {}
  ~PendingStep() { stop(); }
  PendingStep(const PendingStep&) = delete;
  PendingStep& operator=(const PendingStep&) = delete;

  // The last one is over. Throws OTR_E_OUT_OF_MEMORY where there is no thread.
  void begin();
  // Waits, at most so many seconds; negative: without end. False: not over. waiting() tells, for a
  // host that interrupts, what the step waits for.
  bool wait(double seconds, const std::function<std::string()>& waiting);
  // Of the step that is over: its report, or throws its failure. As often as wanted.
  [[nodiscard]] const otr_step_report& result();
  // Ends the thread, once the step is over.
  void stop() noexcept;

 private:
  const Step step_;
  uint64_t number_ = 0;       // of the worker's last job
  otr_step_report report_{};  // the worker's until that job has run, as is failure_
  std::exception_ptr failure_;
  SerialWorker worker_;
};

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// What an engine tells the host's log, beside what its calls return.
#pragma once

#include <cstdint>
#include <string>

#include "core/engine/committed.h"

namespace outrigger::engine {

struct SaveReport {
  std::string tag, failure;
  int64_t bytes;            // of this rank
  double seconds, held_up;  // from the call to the end; the training, by the copy
};

void log_commit(const Declared& declared, const Committed& committed);
// scale: of the next window.
void log_step(const Declared& declared, const otr_step_report& report, double scale);
// Of an asynchronous save that is over. failure: empty where it has succeeded.
void log_save(const Declared& declared, const SaveReport& report) noexcept;
void log_failure(const Declared& declared, const Error& error) noexcept;

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// What an engine tells the host's log, beside what its calls return.
#pragma once

#include "core/engine/committed.h"

namespace outrigger::engine {

void log_commit(const Declared& declared, const Committed& committed);
// scale: of the next window.
void log_step(const Declared& declared, const otr_step_report& report, double scale);
void log_failure(const Declared& declared, const Error& error) noexcept;

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// The learning-rate schedule of a configuration.
#pragma once

#include "core/config/config.h"
#include "core/config/values.h"

namespace outrigger::config {

// Checks scheduler.* of the values, writes the type's own defaults into them, and fills in
// optimizer.schedule, whose rule must be known. Throws OTR_E_CONFIG.
void read_schedule(Values& values, OptimizerConfig& optimizer);

}  // namespace outrigger::config

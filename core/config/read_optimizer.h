// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/config/config.h"
#include "core/config/values.h"

namespace outrigger::config {

// Type, hyperparameters, clipping and seed from checked values, into which the type's own defaults
// go. Throws OTR_E_CONFIG for what the type has no use for.
void read_optimizer(Values& values, OptimizerConfig& optimizer);

// Of these, what is Muon's.
void read_muon(Values& values, OptimizerConfig& optimizer);

}  // namespace outrigger::config

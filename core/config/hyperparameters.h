// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/config/config.h"
#include "core/config/values.h"

namespace outrigger::config {

// Type, hyperparameters, clipping and seed from checked values.
void read_optimizer(const Values& values, OptimizerConfig& optimizer);

}  // namespace outrigger::config

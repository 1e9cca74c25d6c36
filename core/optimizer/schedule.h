// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: functions of the number of updates, in double.
#pragma once

#include <cstdint>

#include "core/config/config.h"

namespace outrigger::optimizer {

// The rate of the update after `applied` others; base: the group's own.
[[nodiscard]] double scheduled_lr(const config::ScheduleConfig& schedule, int64_t applied,
                                  double base);

// The same of beta1, where schedule.cycles_betas.
[[nodiscard]] double scheduled_beta1(const config::ScheduleConfig& schedule, int64_t applied);

// The hyperparameters of that update.
[[nodiscard]] config::OptimizerConfig scheduled(const config::OptimizerConfig& config,
                                                int64_t applied);

}  // namespace outrigger::optimizer

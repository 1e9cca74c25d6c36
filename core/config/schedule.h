// SPDX-License-Identifier: Apache-2.0
// A learning-rate schedule as data; core/optimizer/schedule.h computes rates from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace outrigger::config {

enum class Schedule : uint8_t {
  none,
  warmup,         // DeepSpeed's five: WarmupLR,
  warmup_decay,   // WarmupDecayLR,
  warmup_cosine,  // WarmupCosineLR,
  one_cycle,      // OneCycle
  range_test,     // and LRRangeTest
  cosine,         // our own: Cosine
  wsd             // and WSD: warm-up, stable, decay
};
enum class Curve : uint8_t { linear, log, cosine, sqrt };

// Steps are updates. What a type has not, is not read.
struct ScheduleConfig {
  Schedule type = Schedule::none;
  std::string_view name;  // as in the key table
  int64_t total = 0, warmup = 0, decay = 0;
  Curve warmup_curve = Curve::log, decay_curve = Curve::linear;
  double warmup_min_lr = 0;
  std::optional<double> warmup_max_lr;  // absent: the group's own rate
  double warmup_min_ratio = 0, min_ratio = 0;

  double cycle_min_lr = 0, cycle_max_lr = 0, decay_lr_rate = 0;
  int64_t first = 1, second = 1, first_stairs = 0, second_stairs = 0, decay_step_size = 0;
  bool cycles_betas = false;
  double cycle_min_mom = 0, cycle_max_mom = 0, decay_mom_rate = 0;

  double range_min_lr = 0, range_rate = 0;
  int64_t range_step_size = 1;
  bool range_staircase = false;

  // The rate follows from the schedule alone; else from the group's own.
  [[nodiscard]] bool is_absolute() const {
    return warmup_max_lr || type == Schedule::one_cycle || type == Schedule::range_test;
  }
  // Whether the hyperparameter of this name is the schedule's alone.
  [[nodiscard]] bool sets(std::string_view hyperparameter) const {
    if (hyperparameter == "lr" || hyperparameter == "adam_lr") return is_absolute();
    return cycles_betas && (hyperparameter == "beta1" || hyperparameter == "beta2");
  }
};

}  // namespace outrigger::config

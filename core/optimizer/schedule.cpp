// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's five are written operation by operation as its Python computes them, so that the
// numbers are the same; its counter is the number of updates less 1.
#include "core/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace outrigger::optimizer {
namespace {

using config::Curve;
using config::Schedule;
using config::ScheduleConfig;

constexpr double kLargestRate = 1e30;  // optimizer.params.lr's: stays finite in float32
constexpr double kLargestMomentum = 0.999;
constexpr double kCycleBeta2 = 0.99;  // DeepSpeed's OneCycle sets it beside beta1

double as_double(int64_t count) { return static_cast<double>(count); }

double half_cosine(double progress) { return (1 + std::cos(std::numbers::pi * progress)) / 2; }

// DeepSpeed's warm-up, after update `i` from 0: from 0 to 1.
double warmed(const ScheduleConfig& s, int64_t i, int64_t warmup) {
  if (s.warmup_curve == Curve::linear) return as_double(i) / as_double(warmup);
  return std::log(as_double(i + 1)) / std::log(as_double(warmup));
}

int64_t deepspeed_warmup(const ScheduleConfig& s) { return std::max<int64_t>(2, s.warmup); }

double decay_steps(const ScheduleConfig& s) {
  return as_double(std::max<int64_t>(1, s.total - deepspeed_warmup(s)));
}

double warmup_lr(const ScheduleConfig& s, int64_t applied, double base) {
  const double low = s.warmup_min_lr, high = s.warmup_max_lr.value_or(base);
  const int64_t i = applied - 1, warmup = deepspeed_warmup(s);
  if (i < 0) return low;
  double share = 1;
  if (i < warmup) {
    share = warmed(s, i, warmup);
  } else if (s.type == Schedule::warmup_decay) {
    share = std::max(0.0, as_double(s.total - i) / decay_steps(s));
  }
  return low + (high - low) * share;
}

double warmup_cosine_ratio(const ScheduleConfig& s, int64_t applied) {
  const int64_t i = applied - 1, warmup = deepspeed_warmup(s);
  if (i < 0) return 0;
  if (i < warmup) return s.warmup_min_ratio + (1 - s.warmup_min_ratio) * warmed(s, i, warmup);
  const double done = as_double(i - warmup + 1) / decay_steps(s);
  return s.min_ratio +
         (1 - s.min_ratio) * (1 + std::cos(std::numbers::pi * std::min(1.0, done))) / 2;
}

double cycle_steps(const ScheduleConfig& s) { return as_double(s.first) + as_double(s.second); }

// 0 at the ends of the cycle, 1 at its top.
double cycle_share(const ScheduleConfig& s, int64_t applied) {
  const double first = as_double(s.first), second = as_double(s.second);
  const double at = std::fmod(as_double(applied), first + second);
  const bool rises = at <= first;
  const double share = rises ? at / first : (first + second - at) / second;
  const auto stairs = as_double(rises ? s.first_stairs : s.second_stairs);
  return stairs > 0 ? std::floor(share * stairs) / stairs : share;
}

bool in_cycle(const ScheduleConfig& s, int64_t applied) {
  return as_double(applied - 1) < cycle_steps(s);
}

// The factor after the cycle.
double cycle_decay(const ScheduleConfig& s, int64_t applied, double rate) {
  if (s.decay_step_size == 0) return 1;
  return 1 + rate * (as_double(applied) - cycle_steps(s)) / as_double(s.decay_step_size);
}

double cycle_lr(const ScheduleConfig& s, int64_t applied) {
  if (in_cycle(s, applied)) {
    return s.cycle_min_lr + (s.cycle_max_lr - s.cycle_min_lr) * cycle_share(s, applied);
  }
  return s.cycle_min_lr / cycle_decay(s, applied, s.decay_lr_rate);
}

double range_lr(const ScheduleConfig& s, int64_t applied) {
  const double done = as_double(applied) / as_double(s.range_step_size);
  return s.range_min_lr * (1 + s.range_rate * (s.range_staircase ? std::floor(done) : done));
}

// From 1 to 0 while progress goes from 0 to 1.
double falling(Curve curve, double progress) {
  if (curve == Curve::cosine) return half_cosine(progress);
  return 1 - (curve == Curve::sqrt ? std::sqrt(progress) : progress);
}

// Cosine and WSD: up, along, down to the last update of `total`, and constant after that.
double own_ratio(const ScheduleConfig& s, int64_t applied) {
  const bool wsd = s.type == Schedule::wsd;
  const int64_t decay = wsd ? s.decay : s.total - s.warmup;
  if (applied >= s.total) return s.min_ratio;
  if (applied < s.warmup) {
    return s.warmup_min_ratio + (1 - s.warmup_min_ratio) * as_double(applied) / as_double(s.warmup);
  }
  if (applied < s.total - decay) return 1;
  const double progress = as_double(applied - (s.total - decay)) / as_double(decay);
  return s.min_ratio + (1 - s.min_ratio) * falling(wsd ? s.decay_curve : Curve::cosine, progress);
}

double unbounded_lr(const ScheduleConfig& s, int64_t applied, double base) {
  switch (s.type) {
    case Schedule::none:
      break;
    case Schedule::warmup:
    case Schedule::warmup_decay:
      return warmup_lr(s, applied, base);
    case Schedule::warmup_cosine:
      return base * warmup_cosine_ratio(s, applied);
    case Schedule::one_cycle:
      return cycle_lr(s, applied);
    case Schedule::range_test:
      return range_lr(s, applied);
    case Schedule::cosine:
    case Schedule::wsd:
      return base * own_ratio(s, applied);
  }
  return base;
}

}  // namespace

double scheduled_lr(const ScheduleConfig& schedule, int64_t applied, double base) {
  return std::min(unbounded_lr(schedule, applied, base), kLargestRate);
}

double scheduled_beta1(const ScheduleConfig& s, int64_t applied) {
  if (applied == 0) return s.cycle_min_mom;
  if (in_cycle(s, applied)) {
    return s.cycle_max_mom - (s.cycle_max_mom - s.cycle_min_mom) * cycle_share(s, applied);
  }
  return std::min(s.cycle_max_mom * cycle_decay(s, applied, s.decay_mom_rate),
                  std::max(s.cycle_max_mom, kLargestMomentum));
}

config::OptimizerConfig scheduled(const config::OptimizerConfig& config, int64_t applied) {
  config::OptimizerConfig now = config;
  now.lr = scheduled_lr(config.schedule, applied, config.lr);
  now.adam_lr = scheduled_lr(config.schedule, applied, config.adam_lr);
  if (config.schedule.cycles_betas) {
    now.beta1 = scheduled_beta1(config.schedule, applied);
    now.beta2 = kCycleBeta2;
  }
  return now;
}

}  // namespace outrigger::optimizer

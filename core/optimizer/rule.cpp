// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/rule.h"

#include <algorithm>
#include <cmath>

#include "core/optimizer/schedule.h"
#include "kernels/reference/decide.h"

namespace outrigger::optimizer {

kernels::UpdateScalars update_scalars(const config::OptimizerConfig& config, int64_t step,
                                      double gradient_factor) {
  const auto t = static_cast<double>(step);
  const double bias1 = config.bias_correction ? 1 - std::pow(config.beta1, t) : 1;
  const double bias2 = config.bias_correction ? 1 - std::pow(config.beta2, t) : 1;
  kernels::UpdateScalars s;
  s.gradient_factor = static_cast<float>(gradient_factor);
  if (config.clip_value > 0) s.clip_value = static_cast<float>(config.clip_value);
  s.nesterov = config.nesterov;
  s.beta1 = static_cast<float>(config.beta1);
  s.one_minus_beta1 = static_cast<float>(1 - config.beta1);
  s.beta2 = static_cast<float>(config.beta2);
  s.one_minus_beta2 = static_cast<float>(1 - config.beta2);
  s.eps = static_cast<float>(config.eps);
  s.inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(bias2));
  s.minus_step = static_cast<float>(-config.lr / bias1);
  s.weight_decay = static_cast<float>(config.weight_decay);
  s.minus_lr_decay = static_cast<float>(-config.lr * config.weight_decay);
  s.decoupled = config.decoupled;
  if (config.rule == kernels::Rule::adam) return s;
  s.minus_step = static_cast<float>(-config.lr);
  s.inverse_bias1 = static_cast<float>(1 / bias1);
  if (config.rule == kernels::Rule::sgd) {
    s.beta1 = static_cast<float>(config.momentum);
    s.one_minus_beta1 = step == 1 ? 1.0F : static_cast<float>(1 - config.dampening);
  }
  if (config.rule == kernels::Rule::muon) {
    s.beta1 = static_cast<float>(config.momentum);
    s.one_minus_beta1 = static_cast<float>(1 - config.momentum);
  }
  return s;
}

const kernels::UpdateScalars& StepScalars::of(int32_t group, const config::OptimizerConfig& config,
                                              int64_t clock, int64_t updates, kernels::Rule rule) {
  auto [entry, added] = known_.try_emplace({group, updates, rule});
  if (added) {
    const config::OptimizerConfig now = scheduled(config, clock);
    entry->second = update_scalars(rule == config.rule ? now : now.elementwise(), updates + 1,
                                   gradient_factor_);
  }
  return entry->second;
}

void set_rule(kernels::Update& update, const config::OptimizerConfig& config, bool matrix) {
  const bool elementwise = config.rule == kernels::Rule::muon && !matrix;
  update.rule = elementwise ? kernels::Rule::adam : config.rule;
  update.weight_rounding = config.master.rounding;
  update.exp_avg_rounding = config.exp_avg.rounding;
  update.exp_avg_sq_rounding = config.exp_avg_sq.rounding;
}

double trust_ratio(const config::OptimizerConfig& config, double weights, double direction) {
  if (!(weights > 0) || !(direction > 0)) return 1;
  return std::clamp(weights / direction, config.min_coeff, config.max_coeff);
}

double muon_factor(const config::OptimizerConfig& config, int64_t rows, int64_t columns) {
  const auto a = static_cast<double>(rows), b = static_cast<double>(columns);
  return config.matches_adam ? 0.2 * std::sqrt(std::max(a, b)) : std::sqrt(std::max(1.0, a / b));
}

kernels::Update by_direction(const kernels::Update& piece, const float* direction, double lr) {
  kernels::Update update = piece;
  update.rule = kernels::Rule::sgd;
  update.grad = direction;
  update.grad_format = kernels::Format::float32;
  update.exp_avg = nullptr;
  update.scalars.gradient_factor = 1;
  update.scalars.clip_value = HUGE_VALF;
  update.scalars.minus_step = static_cast<float>(-lr);
  return update;
}

double norm_of(const kernels::NormSum& squares) {
  static_assert(std::tuple_size_v<decltype(squares.limbs)> == kernels::reference::kLimbs);
  return kernels::reference::norm_of(squares.limbs.data(), squares.nonfinite);
}

double clip_coefficient(double norm, double clip) {
  return kernels::reference::clip_coefficient(norm, clip);
}

}  // namespace outrigger::optimizer

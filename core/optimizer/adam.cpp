// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/adam.h"

#include <algorithm>
#include <cmath>

namespace outrigger::optimizer {

kernels::AdamScalars adam_scalars(const config::OptimizerConfig& config, int64_t step,
                                  double gradient_factor) {
  const auto t = static_cast<double>(step);
  const double bias1 = config.bias_correction ? 1 - std::pow(config.beta1, t) : 1;
  const double bias2 = config.bias_correction ? 1 - std::pow(config.beta2, t) : 1;
  kernels::AdamScalars s;
  s.gradient_factor = static_cast<float>(gradient_factor);
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
  return s;
}

double clip_coefficient(double norm, double clip) {
  if (clip <= 0) return 1;
  return std::min(1.0, clip / (norm + 1e-6));  // the 1e-6 is DeepSpeed's and PyTorch's
}

}  // namespace outrigger::optimizer

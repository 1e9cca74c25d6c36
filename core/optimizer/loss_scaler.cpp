// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/loss_scaler.h"

#include <algorithm>

namespace outrigger::optimizer {

bool LossScaler::update(bool overflow) {
  if (!rules_.dynamic) return true;
  constexpr double kFactor = 2;
  bool possible = true;
  if (overflow) {
    if (rules_.hysteresis == 1 || hysteresis_left_ == 1) {
      possible = scale_ != rules_.minimum;
      scale_ = std::max(scale_ / kFactor, rules_.minimum);
    } else {
      --hysteresis_left_;
    }
    last_overflow_ = windows_;
  } else {
    if (rules_.consecutive_hysteresis) hysteresis_left_ = rules_.hysteresis;
    const int64_t clean = windows_ - last_overflow_ - 1;
    if (clean > 0 && clean % rules_.window == 0) {
      hysteresis_left_ = rules_.hysteresis;
      scale_ = std::min(scale_ * kFactor, rules_.maximum);
    }
  }
  ++windows_;
  return possible;
}

}  // namespace outrigger::optimizer

// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/loss_scaler.h"

#include <algorithm>

namespace outrigger::optimizer {

void LossScaler::restore(const State& state) {
  if (!rules_.dynamic) return;
  state_ = state;
  state_.scale = std::clamp(state.scale, rules_.minimum, rules_.maximum);
  state_.hysteresis_left = std::min(state.hysteresis_left, rules_.hysteresis);
}

bool LossScaler::update(bool overflow) {
  if (!rules_.dynamic) return true;
  constexpr double kFactor = 2;
  bool possible = true;
  if (overflow) {
    if (rules_.hysteresis == 1 || state_.hysteresis_left == 1) {
      possible = state_.scale != rules_.minimum;
      state_.scale = std::max(state_.scale / kFactor, rules_.minimum);
    } else {
      --state_.hysteresis_left;
    }
    state_.last_overflow = state_.windows;
  } else {
    if (rules_.consecutive_hysteresis) state_.hysteresis_left = rules_.hysteresis;
    const int64_t clean = state_.windows - state_.last_overflow - 1;
    if (clean > 0 && clean % rules_.window == 0) {
      state_.hysteresis_left = rules_.hysteresis;
      state_.scale = std::min(state_.scale * kFactor, rules_.maximum);
    }
  }
  ++state_.windows;
  return possible;
}

}  // namespace outrigger::optimizer

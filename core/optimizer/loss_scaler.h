// SPDX-License-Identifier: Apache-2.0
// The loss scale of float16 training, by DeepSpeed's rules (its DynamicLossScaler): the scale
// halves when a window overflows and the hysteresis is used up, and doubles after `window` clean
// ones.
//
// A window uses one scale from its first pass to its update: update() comes after the gradients
// were divided by scale(), so a window that lets the scale grow was still right.
#pragma once

#include <cstdint>

#include "core/config/config.h"

namespace outrigger::optimizer {

class LossScaler {
 public:
  struct State {
    double scale;
    int64_t windows = 0;         // seen so far
    int64_t last_overflow = -1;  // number of the window
    int64_t hysteresis_left;     // overflows until the scale halves; a halving does not refill it
  };

  explicit LossScaler(const config::LossScaling& rules)
      : rules_(rules), state_{.scale = rules.initial, .hysteresis_left = rules.hysteresis} {}

  [[nodiscard]] double scale() const { return state_.scale; }
  [[nodiscard]] const State& state() const { return state_; }
  // Goes on from there, with this object's rules: a fixed scale stays, another one is brought into
  // their range.
  void restore(const State& state);

  // Notes the end of a window; true, except for an overflow at the smallest scale, from where no
  // scale can help. An overflow of a fixed scale changes nothing.
  [[nodiscard]] bool update(bool overflow);

 private:
  config::LossScaling rules_;
  State state_;
};

}  // namespace outrigger::optimizer

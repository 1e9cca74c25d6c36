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
  explicit LossScaler(const config::LossScaling& rules)
      : rules_(rules), scale_(rules.initial), hysteresis_left_(rules.hysteresis) {}

  [[nodiscard]] double scale() const { return scale_; }

  // Notes the end of a window; true, except for an overflow at the smallest scale, from where no
  // scale can help. An overflow of a fixed scale changes nothing.
  [[nodiscard]] bool update(bool overflow);

 private:
  config::LossScaling rules_;
  double scale_;
  int64_t windows_ = 0;         // seen so far
  int64_t last_overflow_ = -1;  // number of the window
  int64_t hysteresis_left_;     // overflows until the scale halves; a halving does not refill it
};

}  // namespace outrigger::optimizer

// SPDX-License-Identifier: Apache-2.0
// What a step makes of the exact sum of the squares of its gradients, in float64; the host and a
// device that decides by itself compute it alike:
//
//   norm            = sqrt(sum, rounded once) * mean     infinite if an element is not finite
//   clip            = clipping / (norm + 1e-6) where that is below 1, else 1; clipping 0: 1
//   gradient_factor = float32(mean * clip)
//
// mean turns the sum over ranks and passes of scaled gradients into their mean, unscaled.
#pragma once

#include "kernels/reference/norm.h"

namespace outrigger::kernels::reference {

// limbs: of a NormSum.
OTR_ELEMENTWISE double norm_of(const uint64_t* limbs, int64_t nonfinite) {
  return nonfinite > 0 ? HUGE_VAL : std::sqrt(round_limbs(limbs, kLimbs, kUnitExponent));
}

OTR_ELEMENTWISE double clip_coefficient(double norm, double clipping) {
  if (clipping <= 0) return 1;
  const double coefficient = clipping / (norm + 1e-6);  // the 1e-6 is DeepSpeed's and PyTorch's
  return coefficient < 1 ? coefficient : 1;
}

}  // namespace outrigger::kernels::reference

// SPDX-License-Identifier: Apache-2.0
// What phase 1 of a step decides, alike on all ranks.
#pragma once

#include "core/base/bits.h"
#include "core/engine/engine.h"

namespace outrigger::engine {

struct Engine::Decision {
  int32_t skip = OTR_SKIP_NONE;
  double mean = 1;  // turns the accumulated sum into the mean gradient, unscaled
  double norm = 0;  // of the mean gradient
  double clip = 1;  // coefficient
  int32_t nonfinite_rank = -1;
  int64_t nonfinite_param = -1;
  int64_t nonfinite_count = 0;
  Bits present;          // by root: some rank has a gradient
  bool updated = false;  // some rank's host has written a weight
};

// A window whose gradients are summed and agreed on, and which takes no more.
struct Engine::Reduced {
  Summed mine;
  bool summed = false;    // mine is complete
  bool agreed = false;    // decision is, in the joint step that is being made again
  bool replaced = false;  // a gradient was written here since
  bool updated = false;   // the host has written a weight here, by the decision
  bool stands = false;    // and so has some rank, when it was to be made again
  Decision decision;
};

}  // namespace outrigger::engine

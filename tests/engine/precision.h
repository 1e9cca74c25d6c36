// SPDX-License-Identifier: Apache-2.0
// The precisions that the engine's tests run in, and the hyperparameters they share.
#pragma once

#include "kernels/kernels.h"
#include "tests/engine/model.h"

namespace outrigger::test {

inline constexpr uint64_t kSeed = 7;

struct Precision {
  const char* name;
  kernels::Format compute, master, exp_avg, exp_avg_sq, accumulator;
  kernels::Rounding rounding;
  const char* json;         // members of the configuration
  const char* states = "";  // of its section "outrigger"
};
[[nodiscard]] const Precision& precision_of(const Case& c);

// The update rules they run with.
struct RuleCase {
  const char* name;
  const char* type;
  const char* params;  // members of the configuration's, after lr and weight_decay
  bool exp_avg, exp_avg_sq;
};
[[nodiscard]] const RuleCase& rule_of(const Case& c);

}  // namespace outrigger::test

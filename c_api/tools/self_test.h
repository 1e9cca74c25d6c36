// SPDX-License-Identifier: Apache-2.0
// Two worker processes that meet, sum, and train a parameter for one step.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace outrigger::tools {

// The phases, in order, by the names in which worker and judge speak of them.
inline constexpr std::array<const char*, 4> kPhases{"attach", "barrier", "all_reduce",
                                                    "engine_step"};

struct SelfTest {
  double seconds = 0;
  std::string failure;                                 // empty: passed
  std::vector<std::pair<std::string, double>> phases;  // completed by both, slowest rank's seconds
};

// Takes no longer than the limit and a few seconds, in which workers that hang are ended.
[[nodiscard]] SelfTest self_test(double limit_seconds);

// What each worker does; it reports to the descriptor. Returns the exit code.
int self_test_worker(int descriptor);

}  // namespace outrigger::tools

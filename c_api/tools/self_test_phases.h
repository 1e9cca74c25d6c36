// SPDX-License-Identifier: Apache-2.0
// The self-test's phases, in order, by the names in which worker and judge speak of them.
#pragma once

#include <array>

namespace outrigger::tools {

inline constexpr std::array<const char*, 4> kPhases{"attach", "barrier", "all_reduce",
                                                    "engine_step"};

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
// Keys of stochastic rounding: a function of seed, parameter name and state, so neither sharding
// nor order changes the random numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/kernels.h"

namespace outrigger::optimizer {

// Keys for weight, exp_avg and exp_avg_sq: XXH3-64 of (seed, name, 'w' | 'm' | 'v').
[[nodiscard]] kernels::RandomStream random_stream(uint64_t seed, std::string_view name);

}  // namespace outrigger::optimizer

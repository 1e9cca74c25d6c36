// SPDX-License-Identifier: Apache-2.0
// The key of stochastic rounding: a function of seed and parameter name, so neither sharding nor
// order changes the random numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/kernels.h"

namespace outrigger::optimizer {

// Its key is XXH3-64 of (seed, name).
[[nodiscard]] kernels::RandomStream random_stream(uint64_t seed, std::string_view name);

}  // namespace outrigger::optimizer

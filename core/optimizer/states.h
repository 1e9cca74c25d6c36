// SPDX-License-Identifier: Apache-2.0
// The states of shards: which a rule keeps, and the memory they get.
#pragma once

#include <vector>

#include "core/config/config.h"
#include "core/optimizer/shard.h"

namespace outrigger::optimizer {

// Muon: whether the shard is updated as a matrix.
[[nodiscard]] bool is_matrix(const config::OptimizerConfig& config, const Shard& shard);

// Gives shards that have none their states, zero; changes nothing if one has others, or if memory
// for all is not to be had. Small ones lie one behind the other, in the order given.
void make_states(const config::OptimizerConfig& config, const std::vector<Shard*>& shards);

}  // namespace outrigger::optimizer

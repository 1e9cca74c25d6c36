// SPDX-License-Identifier: Apache-2.0
// Rules between keys, after each key was checked alone. Each throws OTR_E_CONFIG with both ways
// out.
#pragma once

#include "core/config/config.h"
#include "core/config/legality.h"
#include "core/config/values.h"

namespace outrigger::config {

// zero_optimization.cpu_offload and cpu_offload_param become device "cpu" of the sections that
// replaced them.
void resolve_old_keys(Values& values);

// train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x world; derives
// what is absent.
void resolve_batch(Values& values, int32_t world);

[[nodiscard]] Combination combination_of(const Values& values);

// Applies the legality table: throws for an illegal row, adds to values.not_built for a row not
// built.
void apply_legality(Values& values, EngineKind engine);

// Formats and roundings of master and moments from DeepSpeed's keys and from outrigger.states,
// written into `optimizer` and into the values.
void resolve_states(Values& values, OptimizerConfig& optimizer);

// Moments and rounding of an optimizer without an engine; the master may stay open.
void resolve_shard_states(Values& values, OptimizerConfig& optimizer);

// mics_shard_size and zero_hpz_partition_size are outrigger.mesh.shard, which divides the world.
void resolve_mesh(Values& values, int32_t world);

// Everything else that two keys can disagree on: sums, dtypes, offload details.
void check_pairs(Values& values);

}  // namespace outrigger::config

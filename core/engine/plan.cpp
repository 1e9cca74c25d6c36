// SPDX-License-Identifier: Apache-2.0
#include "core/engine/plan.h"

#include <algorithm>

namespace outrigger::engine {
Plan::Plan(const layout::Layout& layout, const config::EngineConfig& config, int32_t rank,
           bool shares_memory)
    : home(config.stage == 0   ? Home::copy
           : shares_memory     ? Home::shared
           : config.stage == 3 ? Home::slices
                               : Home::replica),
      bucket_buffers(
          std::max<uint64_t>(1, std::min<uint64_t>(static_cast<uint64_t>(config.bucket_buffers),
                                                   layout.buckets().size()))) {
  const int64_t all = layout.flat_elements(), trainable = layout.trainable_elements();
  const int64_t shard = layout.shard_elements(), frozen = all - trainable;
  const int64_t elements = home == Home::shared   ? shard + (rank == 0 ? frozen : 0)
                           : home == Home::slices ? shard + frozen
                                                  : all;
  published = engine::bytes_of(elements, config.compute);
  shared_published = engine::bytes_of(all, config.compute);
  const int64_t owned = home == Home::copy ? trainable : shard;
  const config::OptimizerConfig& states = config.optimizer;
  if (states.master.format != config.compute) {
    master = engine::bytes_of(owned, states.master.format);
  }
  exp_avg = engine::bytes_of(owned, states.exp_avg.format);
  exp_avg_sq = engine::bytes_of(owned, states.exp_avg_sq.format);
  const bool boundary = config.order == config::Order::boundary;
  accumulators =
      engine::bytes_of(boundary || config.stage == 0 ? trainable : shard, config.accumulator);
  const int64_t largest = layout.largest_bucket();
  if (!boundary) {
    ring = engine::bytes_of(largest * static_cast<int64_t>(bucket_buffers), config.compute);
  }
  if (!shares_memory) {
    received = engine::bytes_of(largest, boundary ? config.accumulator : config.compute);
  }
}

int64_t Plan::bytes_of(memory::Purpose purpose) const {
  switch (purpose) {
    case memory::Purpose::published:
      return published;
    case memory::Purpose::master:
      return master;
    case memory::Purpose::exp_avg:
      return exp_avg;
    case memory::Purpose::exp_avg_sq:
      return exp_avg_sq;
    case memory::Purpose::accumulators:
      return accumulators;
    case memory::Purpose::buckets:
      return ring + received;
    default:
      return 0;  // comes and goes
  }
}

}  // namespace outrigger::engine

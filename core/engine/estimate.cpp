// SPDX-License-Identifier: Apache-2.0
// What a model needs before anything of it is allocated: the plan that commit follows, and beside
// it DeepSpeed's layout by its formula.
#include <algorithm>
#include <utility>

#include "core/engine/declared.h"
#include "core/engine/plan.h"
#include "core/engine/start.h"
#include "kernels/composed.h"

namespace outrigger::engine {

using memory::Entry;
using memory::Purpose;

namespace {

void add(MemoryEntries& all, memory::Space space, Purpose purpose, int64_t resident, int64_t peak) {
  auto& entries = space == memory::Space::host ? all.host : all.device;
  for (Entry* entry : {&entries.at(static_cast<size_t>(purpose)), &entries.back()}) {
    entry->resident += resident;
    entry->peak += resident + peak;
  }
}

// Of each parameter, what this rank holds of its first value.
Start start_of(const layout::Model& model, const config::EngineConfig& config, const Estimate& e) {
  Start start;
  start.in_commit = e.start == Estimate::Start::given;
  start.from_rank0 = start.in_commit && config.initial != config::Initial::compare;
  const bool has_copies = e.rank == 0 || config.initial == config::Initial::compare;
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    const int64_t share = (p.count + e.world - 1) / e.world;
    start.held.push_back(p.root != id ? 0
                         : start.in_commit
                             ? (has_copies ? p.count * 4 : 0)
                             : e.initial_element_bytes *
                                   (e.start == Estimate::Start::held ? p.count : share));
    if (e.start == Estimate::Start::share) {
      start.whole.push_back(p.root != id ? 0 : e.initial_element_bytes * p.count);
    }
  }
  return start;
}

comm::Shape shape_of(const config::EngineConfig& config, const Estimate& e) {
  const int32_t shard = config::shard_of(config, e.world);
  comm::Shape shape{e.hosts > 1 ? comm::Levels::hosts : comm::Levels::one, e.hosts, e.world,
                    e.rank};
  if (shard < e.world) shape = comm::mesh_shape(e.rank, e.world, shard, config.divide_states);
  shape.shares_memory = e.shares_memory;
  return shape;
}

MemoryEntries ours(const layout::Model& model, const config::EngineConfig& config,
                   const Estimate& e, bool on_device) {
  const comm::Shape shape = shape_of(config, e);
  const layout::Layout layout(model, shape.slices, bucket_elements(model, config, shape.slices),
                              kept_on_device(model, config));
  const Plan plan(model, layout, config, {shape, on_device});
  MemoryEntries entries;
  for (size_t i = 0; i < memory::kPurposes; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    for (const memory::Space space : {memory::Space::host, memory::Space::device}) {
      add(entries, space, purpose, plan.bytes_of(purpose, space), 0);
    }
  }
  if (e.start != Estimate::Start::none) {
    const StartPeaks peaks =
        peaks_of_start(model, layout, plan, shape.slice, start_of(model, config, e));
    entries.host.at(static_cast<size_t>(Purpose::initial)).peak = peaks.initial;
    entries.host.at(static_cast<size_t>(Purpose::acquired)).peak = peaks.acquired;
    entries.host.back().peak = peaks.total;
    return entries;
  }
  int64_t windows = 0;
  const bool gathers = plan.home == Home::slices && shape.published_slices() > 1;
  if (gathers) windows += bytes_of(e.acquired, config.compute);
  if (plan.published_in != plan.front && e.acquired > 0) {
    int64_t copied = 0;  // from this host's memory, so that they may stay
    for (int64_t id = 0; id < model.size(); ++id) {
      const layout::Parameter& p = model.at(id);
      if (p.root == id && !(gathers && p.trainable)) copied += p.count;
    }
    const int64_t stay = std::min(config.live_elements, copied);
    windows += bytes_of(gathers ? stay : std::max(e.acquired, stay), config.compute);
  }
  if (config.compute != kernels::Format::float32) windows += e.widened * 4;
  add(entries, plan.front, Purpose::acquired, 0, windows);
  add(entries, plan.front, Purpose::outputs, 0, e.outputs * 4);
  if (e.grads_at_once) {
    add(entries, plan.front, Purpose::scratch, 0,
        bytes_of(layout.trainable_elements(), config.compute));
  }
  return entries;
}

// Elements, and how many of these have a second moment.
struct Counted {
  int64_t elements = 0, second = 0;
};

// Parameters, gradients, master weights, moments; during the step the master's gradients, too. The
// optimizer's part is divided from stage 1 on, gradients from stage 2 on, parameters at stage 3.
// (DeepSpeed 0.19.8; its figures for 6.86e9 parameters on 4 ranks are in the test.)
// kept: on the device with offload, too.
MemoryEntries deepspeeds(const Counted& kept, const Counted& others,
                         const config::EngineConfig& config, int32_t world, bool on_device) {
  using memory::Space;
  const Space front = on_device ? Space::device : Space::host;
  const Space back = on_device && !config.offload_optimizer ? Space::device : Space::host;
  const auto share = [&](int64_t all, int32_t from_stage) {
    return config.stage >= from_stage ? (all + world - 1) / world : all;
  };
  const config::OptimizerConfig& states = config.optimizer;
  // What DeepSpeed would hold where it has no such format.
  const auto format_of = [](kernels::Format f) {
    return kernels::is_composed(f) ? kernels::Format::float32 : f;
  };
  const kernels::Format master = format_of(states.master.format);
  MemoryEntries entries;
  add(entries, front, Purpose::published,
      bytes_of(share(kept.elements + others.elements, 3), config.compute), 0);
  for (const auto& [space, counted] : {std::pair(front, kept), std::pair(back, others)}) {
    const int64_t elements = share(counted.elements, 1);
    add(entries, space, Purpose::accumulators,
        bytes_of(share(counted.elements, 2), config.accumulator), 0);
    // At float32 compute the parameters are the master.
    if (config.compute != kernels::Format::float32) {
      add(entries, space, Purpose::master, bytes_of(elements, master), 0);
    }
    if (states.keeps_exp_avg()) {
      add(entries, space, Purpose::exp_avg, bytes_of(elements, format_of(states.exp_avg.format)),
          0);
    }
    if (states.keeps_exp_avg_sq()) {
      add(entries, space, Purpose::exp_avg_sq,
          bytes_of(share(counted.second, 1), format_of(states.exp_avg_sq.format)), 0);
    }
    add(entries, space, Purpose::scratch, 0, bytes_of(elements, master));
  }
  return entries;
}

MemoryEntries estimate_of(const layout::Model& model, const config::EngineConfig& config,
                          const Estimate& wanted, bool on_device) {
  if (!wanted.deepspeed) return ours(model, config, wanted, on_device);
  Counted kept, others;
  const int64_t first_other = kept_on_device(model, config);
  for (int64_t id = 0; id < model.size(); ++id) {
    const layout::Parameter& p = model.at(id);
    if (p.root != id || !p.trainable) continue;
    Counted& own = id < first_other ? kept : others;
    own.elements += p.count;
    if (!p.matrix) own.second += p.count;
  }
  return deepspeeds(kept, others, config, wanted.world, on_device);
}

}  // namespace

MemoryEntries Declared::estimate(const Estimate& wanted) const {
  if (wanted.on_device && !device) {
    return estimate_of(model, config_on(config::EngineKind::device), wanted, true);
  }
  return estimate_of(model, config, wanted, device != nullptr);
}

}  // namespace outrigger::engine

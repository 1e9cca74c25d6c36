// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/context/error.h"
#include "core/optimizer/adam.h"
#include "core/optimizer/random_key.h"

namespace outrigger::optimizer {

using kernels::Format;

Optimizer::Optimizer(std::shared_ptr<Context> context, std::string_view json)
    : context_(std::move(context)),
      config_(config::parse_optimizer(json)),
      workers_(context_->workers()) {
  for (const std::string& warning : config_.warnings) context_->log(OTR_LOG_WARNING, warning);
}

void Optimizer::check(const Shard& shard, size_t index) const {
  const Format m = config_.exp_avg.format;
  const Format v = config_.exp_avg_sq.format;
  if (config_.master_given && config_.master.format != shard.master_format()) {
    fail(OTR_E_STATE,
         "shard {} (\"{}\") has {} weights, this optimizer's \"states\" ask for a {} master", index,
         shard.name, tensor::name_of(shard.master_format()),
         tensor::name_of(config_.master.format));
  }
  if (shard.has_states && (shard.exp_avg_format != m || shard.exp_avg_sq_format != v)) {
    fail(OTR_E_STATE,
         "shard {} (\"{}\") has states in {} and {} from an earlier step, this optimizer keeps {} "
         "and {}: step a shard with one set of formats",
         index, shard.name, tensor::name_of(shard.exp_avg_format),
         tensor::name_of(shard.exp_avg_sq_format), tensor::name_of(m), tensor::name_of(v));
  }
}

void Optimizer::allocate(Shard& shard) const {
  if (shard.has_states) return;
  const auto bytes = [&](Format f) { return kernels::bytes_of(shard.weights.count, f); };
  shard.exp_avg_format = config_.exp_avg.format;
  shard.exp_avg_sq_format = config_.exp_avg_sq.format;
  memory::Block exp_avg(shard.ledger, memory::Purpose::exp_avg, bytes(shard.exp_avg_format));
  shard.exp_avg_sq =
      memory::Block(shard.ledger, memory::Purpose::exp_avg_sq, bytes(shard.exp_avg_sq_format));
  shard.exp_avg = std::move(exp_avg);
  shard.has_states = true;
}

void Optimizer::prepare(const std::vector<Shard*>& shards) const {
  std::vector<const Shard*> sorted(shards.begin(), shards.end());
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end()) {
    const auto first = std::ranges::find(shards, *twice);
    const auto second = std::find(first + 1, shards.end(), *twice);
    fail(OTR_E_ARGUMENT, "shards {} and {} are the same shard: give each once",
         first - shards.begin(), second - shards.begin());
  }
  for (size_t i = 0; i < shards.size(); ++i) check(*shards[i], i);
  for (Shard* shard : shards) allocate(*shard);
}

void Optimizer::step(const std::vector<Shard*>& shards, otr_step_report& report) {
  prepare(shards);
  ++steps_;
  report.loss_scale = 1;
  report.lr = config_.lr;
  report.clip_coefficient = 1;
  report.nonfinite_param = report.nonfinite_rank = -1;
  report.grad_norm = std::nan("");
  // Taken where something depends on it; clipping by a norm that is not finite would.
  if (config_.check_overflow || config_.gradient_clipping > 0) take_norm(shards, report);
  if (report.nonfinite_count > 0) {
    ++skipped_;
    report.outcome = OTR_STEP_SKIPPED;
    report.reason = OTR_SKIP_NONFINITE;
  } else {
    if (config_.gradient_clipping > 0) {
      report.clip_coefficient = clip_coefficient(report.grad_norm, config_.gradient_clipping);
    }
    const kernels::UpdateCount count = host_.adam(updates(shards, report.clip_coefficient));
    for (Shard* shard : shards) ++shard->updates;
    report.updates = count.updates;
    report.vanished = count.vanished;
    ++applied_;
    report.outcome = OTR_STEP_APPLIED;
  }
  report.micro_steps = steps_;
  report.applied_steps = applied_;
  report.skipped_steps = skipped_;
}

void Optimizer::take_norm(const std::vector<Shard*>& shards, otr_step_report& report) {
  std::vector<device::Host::Array> grads;
  grads.reserve(shards.size());
  for (const Shard* shard : shards) {
    grads.push_back({shard->grads.data, shard->grads.format, shard->grads.count});
  }
  const kernels::NormSum norm = host_.norm(grads, report.nonfinite_param);
  report.nonfinite_rank = report.nonfinite_param < 0 ? -1 : 0;
  report.nonfinite_count = norm.nonfinite;
  report.grad_norm = norm.nonfinite > 0 ? HUGE_VAL : std::sqrt(kernels::value_of(norm));
}

std::vector<kernels::Adam> Optimizer::updates(const std::vector<Shard*>& shards,
                                              double gradient_factor) const {
  std::map<int64_t, kernels::AdamScalars> scalars;  // by the number of updates
  std::vector<kernels::Adam> pieces;
  pieces.reserve(shards.size());
  const bool draws = config_.master.rounding == kernels::Rounding::stochastic ||
                     config_.exp_avg.rounding == kernels::Rounding::stochastic ||
                     config_.exp_avg_sq.rounding == kernels::Rounding::stochastic;
  for (const Shard* shard : shards) {
    auto [entry, added] = scalars.try_emplace(shard->updates);
    if (added) entry->second = adam_scalars(config_, shard->updates + 1, gradient_factor);
    kernels::Adam a;
    a.grad_format = shard->grads.format;
    a.grad = shard->grads.data;
    a.weight_format = shard->weights.format;
    a.weight = shard->weights.data;
    a.remainder = shard->remainder;
    a.exp_avg_format = shard->exp_avg_format;
    a.exp_avg = shard->exp_avg.data();
    a.exp_avg_sq_format = shard->exp_avg_sq_format;
    a.exp_avg_sq = shard->exp_avg_sq.data();
    a.weight_rounding = config_.master.rounding;
    a.exp_avg_rounding = config_.exp_avg.rounding;
    a.exp_avg_sq_rounding = config_.exp_avg_sq.rounding;
    if (shard->published) {
      a.published_format = shard->published->format;
      a.published = shard->published->data;
    }
    a.count = shard->weights.count;
    a.scalars = entry->second;
    if (draws) a.random = random_stream(config_.seed, shard->name);
    a.random.first_element = static_cast<uint64_t>(shard->first_element);
    a.random.step = static_cast<uint64_t>(shard->updates);
    pieces.push_back(a);
  }
  return pieces;
}

}  // namespace outrigger::optimizer

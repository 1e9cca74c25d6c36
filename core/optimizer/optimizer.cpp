// SPDX-License-Identifier: Apache-2.0
#include "core/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/optimizer/random_key.h"
#include "core/optimizer/rule.h"
#include "core/optimizer/schedule.h"
#include "core/optimizer/states.h"
#include "kernels/update_part.h"

namespace outrigger::optimizer {
namespace {

void require_grads(const std::vector<Shard*>& shards) {
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i]->grads) {
      fail(OTR_E_STATE,
           "shard {} (\"{}\") has no gradients: give them by otr_shard_set_grads, or leave it out",
           i, shards[i]->name);
    }
  }
}

}  // namespace

Optimizer::Optimizer(std::shared_ptr<Context> context, std::string_view json)
    : context_(std::move(context)),
      config_(config::parse_optimizer(json)),
      outliers_(config_.outliers),
      workers_(context_->workers()) {
  for (const std::string& warning : config_.warnings) context_->log(OTR_LOG_WARNING, warning);
}

void Optimizer::set_value(std::string_view name, double value) {
  if (name != "gradient_factor") return config::set_hyperparameter(config_, name, value);
  if (!std::isfinite(value) || value == 0) {
    fail(OTR_E_ARGUMENT,
         "gradient_factor = {} is not legal; legal: a finite number other than 0; the old value {} "
         "stays",
         value, gradient_factor_);
  }
  gradient_factor_ = value;
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
  make_states(config_, shards);
}

void Optimizer::resume(const Counts& counts, config::OptimizerConfig config,
                       const std::vector<double>& norms) {
  counts_ = counts;
  config_ = std::move(config);
  outliers_.restore(norms);
}

void Optimizer::step(const std::vector<Shard*>& shards, otr_step_report& report) {
  require_grads(shards);
  prepare(shards);
  make_room(shards);
  ++counts_.steps;
  report.loss_scale = 1;
  const int64_t first = shards.empty() ? 0 : shards[0]->updates;
  report.lr = scheduled_lr(config_.schedule, first, config_.lr);
  report.clip_coefficient = 1;
  report.nonfinite_param = report.nonfinite_rank = -1;
  report.grad_norm = std::nan("");
  // Taken where something depends on it; clipping by a norm that is not finite would.
  if (config_.check_overflow || config_.gradient_clipping > 0 || outliers_.is_on()) {
    take_norm(shards, report);
  }
  const bool outlier = outliers_.is_outlier(report.grad_norm);
  outliers_.note(report.grad_norm);
  if (report.nonfinite_count > 0) {
    ++counts_.skipped;
    report.outcome = OTR_STEP_SKIPPED;
    report.reason = OTR_SKIP_NONFINITE;
  } else if (outlier) {
    ++counts_.skipped;
    report.outcome = OTR_STEP_SKIPPED;
    report.reason = OTR_SKIP_OUTLIER;
  } else {
    if (config_.gradient_clipping > 0) {
      report.clip_coefficient = clip_coefficient(report.grad_norm, config_.gradient_clipping);
    }
    fill_pieces(shards, gradient_factor_ * report.clip_coefficient);
    if (config_.rule == kernels::Rule::lamb) scale_layers(shards, pieces_);
    const kernels::UpdateCount count = update(shards, pieces_);
    for (Shard* shard : shards) ++shard->updates;
    report.updates = count.updates;
    report.vanished = count.vanished;
    ++counts_.applied;
    report.outcome = OTR_STEP_APPLIED;
  }
  report.micro_steps = counts_.steps;
  report.applied_steps = counts_.applied;
  report.skipped_steps = counts_.skipped;
}

double Optimizer::norm(const std::vector<Shard*>& shards) {
  require_grads(shards);
  otr_step_report report{};
  take_norm(shards, report);
  return report.grad_norm;
}

void Optimizer::take_norm(const std::vector<Shard*>& shards, otr_step_report& report) {
  std::vector<device::Host::Array> grads;
  grads.reserve(shards.size());
  for (const Shard* shard : shards) {
    grads.push_back({shard->grads->data, shard->grads->format, shard->grads->count});
  }
  const kernels::NormSum norm = host_.norm(grads, report.nonfinite_param);
  report.nonfinite_rank = report.nonfinite_param < 0 ? -1 : 0;
  report.nonfinite_count = norm.nonfinite;
  report.grad_norm = std::abs(gradient_factor_) * norm_of(norm);
}

// Before anything changes: there may be none.
void Optimizer::make_room(const std::vector<Shard*>& shards) {
  NewtonSchulz::Room room = matrix_room_;
  for (const Shard* shard : shards) {
    if (is_matrix(config_, *shard)) room.include(shard->rows, shard->weights.count / shard->rows);
  }
  if (room.bytes() == matrix_room_.bytes()) return;
  matrix_memory_ = {};
  matrix_room_ = {};
  matrix_memory_ = {ledger_, memory::Purpose::scratch, room.bytes()};
  matrix_room_ = room;
  newton_schulz_ = NewtonSchulz(host_, room, matrix_memory_.data());
}

kernels::UpdateCount Optimizer::update(const std::vector<Shard*>& shards,
                                       std::span<kernels::Update> pieces) {
  kernels::UpdateCount count;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!is_matrix(config_, *shards[i])) continue;
    kernels::add(count, update_matrix(*shards[i], pieces[i]));
    pieces[i].count = 0;
  }
  kernels::add(count, host_.update(pieces));
  return count;
}

kernels::UpdateCount Optimizer::update_matrix(const Shard& shard, const kernels::Update& piece) {
  const int64_t columns = shard.weights.count / shard.rows;
  host_.muon_direction(piece, newton_schulz_.matrix());
  newton_schulz_.take(shard.rows, columns);
  const float* direction = newton_schulz_.solve(config_.ns_steps, [] {});
  const double lr = scheduled_lr(config_.schedule, shard.updates, config_.lr);
  const kernels::Update last =
      by_direction(piece, direction, lr * muon_factor(config_, shard.rows, columns));
  return host_.update(std::span(&last, 1));
}

// Each shard is a layer.
void Optimizer::scale_layers(const std::vector<Shard*>& shards, std::span<kernels::Update> pieces) {
  const std::vector<device::LambNorms> norms = host_.lamb_norms(pieces);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const double ratio =
        trust_ratio(config_, norm_of(norms[i].weights), norm_of(norms[i].directions));
    const double lr = scheduled_lr(config_.schedule, shards[i]->updates, config_.lr);
    pieces[i].scalars.minus_step = static_cast<float>(-lr * ratio);
  }
}

void Optimizer::fill_pieces(const std::vector<Shard*>& shards, double gradient_factor) {
  StepScalars scalars(gradient_factor);
  pieces_.clear();
  pieces_.reserve(shards.size());
  for (const Shard* shard : shards) {
    kernels::Update& a = pieces_.emplace_back();
    a.grad_format = shard->grads->format;
    a.grad = shard->grads->data;
    a.weight_format = shard->weights.format;
    a.weight = shard->weights.data;
    a.remainder = shard->remainder;
    a.exp_avg_format = shard->exp_avg_format;
    a.exp_avg = shard->exp_avg.data();
    a.exp_avg_scales = shard->scales_of(shard->exp_avg, shard->exp_avg_format);
    a.exp_avg_sq_format = shard->exp_avg_sq_format;
    a.exp_avg_sq = shard->exp_avg_sq.data();
    a.exp_avg_sq_scales = shard->scales_of(shard->exp_avg_sq, shard->exp_avg_sq_format);
    set_rule(a, config_, is_matrix(config_, *shard));
    if (shard->published) {
      a.published_format = shard->published->format;
      a.published = shard->published->data;
    }
    a.count = shard->weights.count;
    a.scalars = scalars.of(0, config_, shard->updates, shard->updates, a.rule);
    if (kernels::RandomStates(a).any()) a.random = random_stream(config_.seed, shard->name);
    a.random.first_element = static_cast<uint64_t>(shard->first_element);
    a.random.step = static_cast<uint64_t>(shard->updates);
  }
}

}  // namespace outrigger::optimizer

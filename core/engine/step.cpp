// SPDX-License-Identifier: Apache-2.0
// The step, a collective in two phases. Phase 1 does everything that can fail and changes nothing:
// reduce, agree on Inf/NaN and on the norm. Phase 2 updates the owned pieces in place and
// publishes.
#include "core/engine/step.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "core/comm/combine.h"
#include "core/optimizer/rule.h"
#include "core/optimizer/schedule.h"

namespace outrigger::engine {
namespace {

// What every rank must have done alike since the last update.
struct WindowFacts {
  int64_t passes;
  int64_t step;
  uint64_t hyperparameters, frozen;  // hashes
  bool operator==(const WindowFacts&) const = default;
};

constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

// What is known of the window's gradient: on one rank, of its slices; merged, of all.
struct GradientFacts {
  kernels::NormSum norm;
  device::Nonfinite origin;
  int32_t seed_overflow = kNoRank;  // the first rank with one
  int32_t discard = 0, updated = 0, reserved = 0;
};

void merge(GradientFacts& into, const GradientFacts& from) {
  kernels::merge(into.norm, from.norm);
  device::keep_first(into.origin, from.origin);
  into.seed_overflow = std::min(into.seed_overflow, from.seed_overflow);
  into.discard |= from.discard;
  into.updated |= from.updated;
}

// The facts and, behind them, a bit for each parameter that has a gradient: of this rank, then of
// all. One message, so that a call that was interrupted in it can be made again.
void agree(comm::Group& group, GradientFacts& facts, Bits& present) {
  static_assert(sizeof facts <= comm::kMergeUnit);
  const auto words = std::as_writable_bytes(present.words());
  std::vector<std::byte> value(sizeof facts + words.size());
  std::memcpy(value.data(), &facts, sizeof facts);
  std::ranges::copy(words, value.begin() + sizeof facts);
  const auto merge_part = [](size_t offset, std::span<std::byte> into,
                             std::span<const std::byte> from) {
    const size_t bits = offset == 0 ? sizeof(GradientFacts) : 0;
    if (bits > 0) comm::merge_as<GradientFacts>(into.data(), from.data(), merge);
    comm::merge_bits(into.subspan(bits), from.subspan(bits));
  };
  group.combine(value, merge_part, "agree on gradients");
  std::memcpy(&facts, value.data(), sizeof facts);
  std::copy(value.begin() + sizeof facts, value.end(), words.begin());
}

}  // namespace

int32_t Engine::mean_ranks() const { return config_.average ? control_->size() : 1; }

bool Engine::at_boundary() const {
  if (boundary_ != OTR_BOUNDARY_CONFIGURED) return boundary_ == OTR_BOUNDARY_YES;
  return steps_in_window_ + 1 >= config_.accumulation_steps;
}

void Engine::agree_on_window() {
  // A schedule is a function of these and of the number of updates, which all agree on.
  std::vector<double> values;
  for (const config::OptimizerConfig& g : groups_) {
    values.insert(values.end(), {g.lr, g.adam_lr, g.beta1, g.beta2, g.eps, g.weight_decay,
                                 g.momentum, g.dampening});
  }
  std::vector<uint8_t> frozen;
  for (int64_t id = 0; id < model_.size(); ++id) frozen.push_back(model_.at(id).frozen ? 1 : 0);
  const WindowFacts mine{passes_in_window_, micro_steps_ + 1,
                         XXH3_64bits(values.data(), values.size() * sizeof(double)),
                         XXH3_64bits(frozen.data(), frozen.size())};
  const auto [first, other, lowest, rank] = comm::compare(*control_, mine, "begin a step");
  if (rank < 0) return;
  if (other.step != first.step || other.passes != first.passes) {
    fail(OTR_E_MISMATCH,
         "rank {} made {} backward passes before step {}, rank 0 made {} before step {}: every "
         "rank makes the same number of passes and steps; one without data begins and ends an "
         "empty pass",
         rank, other.passes, other.step, first.passes, first.step);
  }
  if (other.hyperparameters != first.hyperparameters) {
    fail(OTR_E_MISMATCH,
         "rank {} and rank 0 step with different hyperparameters (lr, adam_lr, betas, eps, "
         "weight_decay, momentum, dampening): set the same values on every rank",
         rank);
  }
  fail(OTR_E_MISMATCH,
       "rank {} and rank 0 have frozen different parameters: call otr_engine_set_trainable alike "
       "on every rank",
       rank);
}

Engine::Decision Engine::agree_on_gradients(const Summed& summed) {
  GradientFacts facts;
  facts.norm = summed.norm;
  facts.origin = summed.origin;
  if (seed_overflow_) facts.seed_overflow = control_->rank();
  facts.discard = summed.discard ? 1 : 0;
  facts.updated = reduced_->updated ? 1 : 0;
  Decision d;
  d.present = Bits(model_.size());
  for (int64_t id = 0; id < model_.size(); ++id) {
    if (reducer_->present()[static_cast<size_t>(id)] != 0) d.present.set(id);
  }
  agree(*control_, facts, d.present);
  const kernels::NormSum& norm = facts.norm;
  d.updated = facts.updated != 0;
  d.nonfinite_count = norm.nonfinite;
  if (norm.nonfinite > 0) {
    d.nonfinite_param = layout_->parameter_at(facts.origin.flat);
    d.nonfinite_rank = facts.origin.rank;
  }
  // Gradients are sums over ranks of scaled gradients; both factors go here, once, in double. The
  // scale is that of the window's passes: it changes only once the window is over.
  const double steps = !config_.divide_at_step     ? 1
                       : config_.divide_by_counted ? static_cast<double>(steps_in_window_ + 1)
                                                   : config_.accumulation_steps;
  d.mean = 1.0 / mean_ranks() / steps / scaler_.scale();
  d.norm = optimizer::norm_of(norm) * d.mean;
  if (facts.discard != 0) {
    d.skip = OTR_SKIP_ABANDONED;
  } else if (facts.seed_overflow != kNoRank) {
    d.skip = OTR_SKIP_SEED_OVERFLOW;
    d.nonfinite_rank = facts.seed_overflow;
  } else if (norm.nonfinite > 0 && (config_.check_overflow || outliers_.is_on() ||
                                    config_.optimizer.gradient_clipping > 0)) {
    d.skip = OTR_SKIP_NONFINITE;
  } else if (outliers_.is_outlier(d.norm)) {
    d.skip = OTR_SKIP_OUTLIER;
  }
  if (norm.nonfinite == 0) {
    d.clip = optimizer::clip_coefficient(d.norm, config_.optimizer.gradient_clipping);
  }
  return d;
}

void Engine::require_step(const char* call) {
  require(State::committed, call);
  require_no_pass(call);
  check();
  if (passes_in_micro_step_ == 0) {
    fail(OTR_E_STATE,
         "{}: no backward pass was made since the last step; a rank without data begins and ends "
         "an empty pass",
         call);
  }
}

// Phase 1. What otr_engine_reduce found before is agreed on again: it may have been replaced since.
// After an interrupt it goes on where it was. steps: the update follows; parameters may have been
// acquired since otr_engine_reduce.
const Engine::Decision& Engine::reduce_window(bool steps) {
  if (steps || !reduced_) gather_->settle();  // after an interrupt in it nothing has been agreed on
  if (!reduced_) agree_on_window();
  if (steps || !reduced_) {  // nobody reads the weights from here on
    await_streams();
    gather_->end_all();
  }
  // By this decision the host has updated them.
  if (steps && config_.optimizer.host) return reduced_->decision;
  if (!reduced_) reduced_ = std::make_unique<Reduced>();
  if (!reduced_->summed) {
    reduced_->mine = reducer_->finish();
    reduced_->summed = true;
  } else if (reduced_->replaced) {
    reduced_->mine.norm = reducer_->norm();
    reduced_->mine.origin = {reduced_->mine.norm.first_nonfinite, -1};
    reduced_->replaced = false;
  }
  Decision decision = agree_on_gradients(reduced_->mine);
  reduced_->stands = decision.updated;
  if (!decision.updated) reduced_->decision = std::move(decision);
  return reduced_->decision;
}

void Engine::report_decision(otr_step_report& report, const Decision& decision) const {
  report.reason = decision.skip;
  report.grad_norm = decision.norm;
  report.clip_coefficient = decision.clip;
  report.nonfinite_param = decision.nonfinite_param;
  report.nonfinite_rank = decision.nonfinite_rank;
  report.nonfinite_count = decision.nonfinite_count;
}

void Engine::report_counts(otr_step_report& report) const {
  report.loss_scale = scaler_.scale();
  report.lr = optimizer::scheduled_lr(groups_[0].schedule, applied_steps_, groups_[0].lr);
  report.micro_steps = micro_steps_;
  report.applied_steps = applied_steps_;
  report.skipped_steps = skipped_steps_;
}

void Engine::reduce(otr_step_report& report) {
  constexpr const char* kCall = "otr_engine_reduce";
  require_step(kCall);
  if (!at_boundary()) {
    fail(OTR_E_STATE,
         "otr_engine_reduce: the next step is number {} of {} in its accumulation window, and "
         "gradients are complete at the last: call otr_engine_step",
         steps_in_window_ + 1, config_.accumulation_steps);
  }
  collective(kCall, Again::always, [&] { report_decision(report, reduce_window(false)); });
  if (reduced_->stands) refuse_updated(kCall);
  report.outcome = OTR_STEP_REDUCED;
  report_counts(report);
}

// Phase 2, and the end of the window.
void Engine::finish_step(otr_step_report& report, const Decision& decision) {
  report_decision(report, decision);
  report_counts(report);  // the loss scale of this window
  // Its own norm, not that of a joint step, and only of whole windows.
  if (decision.skip == OTR_SKIP_NONE || decision.skip == OTR_SKIP_OUTLIER ||
      decision.skip == OTR_SKIP_JOINT) {
    outliers_.note(reduced_->decision.norm);
  }
  bool scalable = true;
  if (decision.skip == OTR_SKIP_NONE) {
    const kernels::UpdateCount mine =
        config_.optimizer.host ? kernels::UpdateCount{} : update(decision);
    const kernels::UpdateCount counts = publish(mine);
    report.updates = counts.updates;
    report.vanished = counts.vanished;
    report.outcome = OTR_STEP_APPLIED;
    ++applied_steps_;
    scalable = scaler_.update(false);
  } else {
    report.outcome = OTR_STEP_SKIPPED;
    ++skipped_steps_;
    const bool overflow =
        decision.skip == OTR_SKIP_NONFINITE || decision.skip == OTR_SKIP_SEED_OVERFLOW;
    if (overflow) scalable = scaler_.update(true);
  }
  clear_window();
  ++micro_steps_;
  report.micro_steps = micro_steps_;
  report.applied_steps = applied_steps_;
  report.skipped_steps = skipped_steps_;
  stuck_at_minimum_ = !scalable;
  log_step(report);
}

void Engine::clear_window() {
  reducer_->clear();
  reduced_.reset();
  seed_overflow_ = false;
  passes_in_window_ = steps_in_window_ = passes_in_micro_step_ = 0;
}

void Engine::require_scalable() const {
  if (!stuck_at_minimum_) return;
  fail(OTR_E_LOSS_SCALE,
       "gradients overflow at the smallest loss scale, {}: a smaller one is not allowed "
       "(fp16.min_loss_scale). The window was skipped and the engine can go on; look for the Inf "
       "or NaN in the model, lower the learning rate, or use bf16",
       scaler_.scale());
}

void Engine::step(otr_step_report& report) {
  require_step("otr_engine_step");
  do_step(report);
}

void Engine::do_step(otr_step_report& report) {
  if (!at_boundary()) {
    stuck_at_minimum_ = false;
    passes_in_micro_step_ = 0;
    ++steps_in_window_;
    ++micro_steps_;
    report.outcome = OTR_STEP_ACCUMULATED;
    report.clip_coefficient = 1;
    report.nonfinite_param = report.nonfinite_rank = -1;
    report_counts(report);
    return;
  }
  constexpr const char* kCall = "otr_engine_step";
  if (config_.optimizer.host) require_reduced(kCall);
  Decision decision;
  collective(kCall, Again::always, [&] { decision = reduce_window(true); });
  collective(kCall, Again::never, [&] { finish_step(report, decision); });
}

}  // namespace outrigger::engine

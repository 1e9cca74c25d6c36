// SPDX-License-Identifier: Apache-2.0
// The step, a collective in two phases. Phase 1 does everything that can fail and changes nothing:
// reduce, agree on Inf/NaN and on the norm. Phase 2 updates the owned pieces in place and
// publishes.
#include "core/engine/step.h"

#include <xxhash.h>

#include <span>

#include "core/comm/gather_values.h"
#include "core/optimizer/rule.h"
#include "core/optimizer/schedule.h"

namespace outrigger::engine {
namespace {

// What every rank must have done alike since the last update.
struct WindowFacts {
  int64_t passes;
  int64_t step;
  uint64_t hyperparameters, frozen;  // hashes
};

// What one rank's slices say about the window's gradient.
struct GradientFacts {
  kernels::NormSum norm;
  device::Nonfinite origin;
  int32_t discard, seed_overflow, updated;
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T>(&value, 1));
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
  const auto all = comm::gather_values(*control_, std::vector{mine}, "begin a step");
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].step != all[0].step || all[rank].passes != all[0].passes) {
      fail(OTR_E_MISMATCH,
           "rank {} made {} backward passes before step {}, rank 0 made {} before step {}: every "
           "rank makes "
           "the same number of passes and steps; one without data begins and ends an empty pass",
           rank, all[rank].passes, all[rank].step, all[0].passes, all[0].step);
    }
    if (all[rank].hyperparameters != all[0].hyperparameters) {
      fail(OTR_E_MISMATCH,
           "rank {} and rank 0 step with different hyperparameters (lr, adam_lr, betas, eps, "
           "weight_decay, momentum, dampening): set the same values on every rank",
           rank);
    }
    if (all[rank].frozen != all[0].frozen) {
      fail(OTR_E_MISMATCH,
           "rank {} and rank 0 have frozen different parameters: call otr_engine_set_trainable "
           "alike on every rank",
           rank);
    }
  }
}

Engine::Decision Engine::agree_on_gradients(const Summed& summed) {
  const GradientFacts mine{summed.norm, summed.origin, summed.discard ? 1 : 0,
                           seed_overflow_ ? 1 : 0, reduced_->updated ? 1 : 0};
  std::vector<std::byte> message(bytes_of(mine).begin(), bytes_of(mine).end());
  const auto present = std::as_bytes(std::span(reducer_->present()));
  message.insert(message.end(), present.begin(), present.end());
  std::vector<std::byte> all(message.size() * static_cast<size_t>(control_->size()));
  control_->all_gather(message, all, "agree on gradients");

  Decision d;
  kernels::NormSum norm;
  device::Nonfinite origin;
  bool discard = false;
  int32_t seed_rank = -1;
  d.present.assign(present.size(), 0);
  for (size_t at = 0; at < all.size(); at += message.size()) {
    GradientFacts facts;
    std::memcpy(&facts, all.data() + at, sizeof facts);
    kernels::merge(norm, facts.norm);
    device::keep_first(origin, facts.origin);
    discard = discard || facts.discard != 0;
    d.updated = d.updated || facts.updated != 0;
    if (facts.seed_overflow != 0 && seed_rank < 0) {
      seed_rank = static_cast<int32_t>(at / message.size());
    }
    for (size_t i = 0; i < present.size(); ++i) {
      d.present[i] |= static_cast<uint8_t>(all[at + sizeof facts + i]);
    }
  }
  d.nonfinite_count = norm.nonfinite;
  if (norm.nonfinite > 0) {
    d.nonfinite_param = layout_->parameter_at(origin.flat);
    d.nonfinite_rank = origin.rank;
  }
  // Gradients are sums over ranks of scaled gradients; both factors go here, once, in double. The
  // scale is that of the window's passes: it changes only once the window is over.
  const double steps = !config_.divide_at_step     ? 1
                       : config_.divide_by_counted ? static_cast<double>(steps_in_window_ + 1)
                                                   : config_.accumulation_steps;
  d.mean = 1.0 / mean_ranks() / steps / scaler_.scale();
  d.norm = optimizer::norm_of(norm) * d.mean;
  if (discard) {
    d.skip = OTR_SKIP_ABANDONED;
  } else if (seed_rank >= 0) {
    d.skip = OTR_SKIP_SEED_OVERFLOW;
    d.nonfinite_rank = seed_rank;
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
  if (!scalable) stuck_at_minimum_ = true;
  log_step(report);
}

void Engine::clear_window() {
  reducer_->clear();
  reduced_.reset();
  seed_overflow_ = false;
  passes_in_window_ = steps_in_window_ = passes_in_micro_step_ = 0;
}

void Engine::require_scalable() {
  if (!std::exchange(stuck_at_minimum_, false)) return;
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

// SPDX-License-Identifier: Apache-2.0
// The step, a collective in two phases. Phase 1 does everything that can fail and changes nothing:
// reduce, agree on Inf/NaN and on the norm. Phase 2 updates the owned pieces in place and
// publishes.
#include "core/engine/step.h"

#include <xxhash.h>

#include <cmath>
#include <span>

#include "core/optimizer/adam.h"

namespace outrigger::engine {
namespace {

// What every rank must have done alike since the last update.
struct WindowFacts {
  int64_t passes;
  int64_t micro_steps;
  uint64_t hyperparameters;  // hash
};

// What one rank's slices say about the window's gradient.
struct GradientFacts {
  kernels::NormSum norm;
  Nonfinite origin;
  int64_t discard;
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T>(&value, 1));
}

}  // namespace

void Engine::agree_on_window() {
  std::vector<double> values;
  for (const config::OptimizerConfig& g : groups_) {
    values.insert(values.end(), {g.lr, g.beta1, g.beta2, g.eps, g.weight_decay});
  }
  const WindowFacts mine{passes_in_window_, micro_steps_,
                         XXH3_64bits(values.data(), values.size() * sizeof(double))};
  std::vector<WindowFacts> all(static_cast<size_t>(control_->size()));
  control_->all_gather(bytes_of(mine), std::as_writable_bytes(std::span(all)), "begin a step");
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].micro_steps != all[0].micro_steps || all[rank].passes != all[0].passes) {
      fail(OTR_E_MISMATCH,
           "rank {} made {} backward passes before step {}, rank 0 made {} before step {}: every "
           "rank makes "
           "the same number of passes and steps; one without data begins and ends an empty pass",
           rank, all[rank].passes, all[rank].micro_steps, all[0].passes, all[0].micro_steps);
    }
    if (all[rank].hyperparameters != all[0].hyperparameters) {
      fail(OTR_E_MISMATCH,
           "rank {} and rank 0 step with different hyperparameters (lr, betas, eps, "
           "weight_decay): set the same values on every rank",
           rank);
    }
  }
}

Engine::Decision Engine::agree_on_gradients(const Summed& summed) {
  const GradientFacts mine{summed.norm, summed.origin, summed.discard ? 1 : 0};
  std::vector<std::byte> message(bytes_of(mine).begin(), bytes_of(mine).end());
  const auto present = std::as_bytes(std::span(reducer_->present()));
  message.insert(message.end(), present.begin(), present.end());
  std::vector<std::byte> all(message.size() * static_cast<size_t>(control_->size()));
  control_->all_gather(message, all, "agree on gradients");

  Decision d;
  kernels::NormSum norm;
  Nonfinite origin;
  bool discard = false;
  d.present.assign(present.size(), 0);
  for (size_t at = 0; at < all.size(); at += message.size()) {
    GradientFacts facts;
    std::memcpy(&facts, all.data() + at, sizeof facts);
    kernels::merge(norm, facts.norm);
    keep_first(origin, facts.origin);
    discard = discard || facts.discard != 0;
    for (size_t i = 0; i < present.size(); ++i) {
      d.present[i] |= static_cast<uint8_t>(all[at + sizeof facts + i]);
    }
  }
  d.nonfinite_count = norm.nonfinite;
  if (norm.nonfinite > 0) {
    d.nonfinite_param = layout_->parameter_at(origin.flat);
    d.nonfinite_rank = origin.rank;
  }
  // Gradients are sums over ranks; the mean divides by their number here, once, in double.
  const double mean = config_.average ? 1.0 / control_->size() : 1.0;
  const double clip = config_.optimizer.gradient_clipping;
  d.norm = norm.nonfinite > 0 ? HUGE_VAL : std::sqrt(kernels::value_of(norm)) * mean;
  d.clip = norm.nonfinite > 0 ? 1 : optimizer::clip_coefficient(d.norm, clip);
  d.gradient_factor = mean * d.clip;
  if (discard) {
    d.skip = OTR_SKIP_ABANDONED;
  } else if (norm.nonfinite > 0 && (config_.check_overflow || clip > 0)) {
    d.skip = OTR_SKIP_NONFINITE;
  }
  return d;
}

void Engine::step(otr_step_report& report) {
  require(State::committed, "otr_engine_step");
  require_no_pass("otr_engine_step");
  check();
  if (passes_in_micro_step_ == 0) {
    fail(OTR_E_STATE,
         "otr_engine_step: no backward pass was made since the last step; a rank without data "
         "begins and ends an empty pass");
  }
  passes_in_micro_step_ = 0;
  ++micro_steps_;
  report.loss_scale = 1;
  report.lr = groups_[0].lr;
  report.clip_coefficient = 1;
  report.nonfinite_param = report.nonfinite_rank = -1;
  report.outcome = OTR_STEP_ACCUMULATED;
  if (micro_steps_ % config_.accumulation_steps == 0) {
    collective([&] {
      agree_on_window();
      gather_->end_all();
      const Decision decision = agree_on_gradients(reducer_->finish());
      report.reason = decision.skip;
      report.grad_norm = decision.norm;
      report.clip_coefficient = decision.clip;
      report.nonfinite_param = decision.nonfinite_param;
      report.nonfinite_rank = decision.nonfinite_rank;
      report.nonfinite_count = decision.nonfinite_count;
      if (decision.skip == OTR_SKIP_NONE) {
        const kernels::UpdateCount counts = publish(update(decision));
        report.updates = counts.updates;
        report.vanished = counts.vanished;
        report.outcome = OTR_STEP_APPLIED;
        ++applied_steps_;
      } else {
        report.outcome = OTR_STEP_SKIPPED;
        ++skipped_steps_;
      }
      reducer_->clear();
      passes_in_window_ = 0;
    });
  }
  report.micro_steps = micro_steps_;
  report.applied_steps = applied_steps_;
  report.skipped_steps = skipped_steps_;
}

}  // namespace outrigger::engine

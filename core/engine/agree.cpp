// SPDX-License-Identifier: Apache-2.0
// What all ranks agree on before a step changes anything.
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "core/comm/combine.h"
#include "core/engine/window.h"
#include "core/optimizer/rule.h"

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

void merge_gradients(GradientFacts& into, const GradientFacts& from) {
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
    if (bits > 0) comm::merge_as<GradientFacts>(into.data(), from.data(), merge_gradients);
    comm::merge_bits(into.subspan(bits), from.subspan(bits));
  };
  group.combine(value, merge_part, "agree on gradients");
  std::memcpy(&facts, value.data(), sizeof facts);
  std::copy(value.begin() + sizeof facts, value.end(), words.begin());
}

}  // namespace

void Window::agree_on_window() {
  // A schedule is a function of these and of the number of updates, which all agree on.
  std::vector<double> values;
  for (const config::OptimizerConfig& g : declared_.groups) {
    values.insert(values.end(), {g.lr, g.adam_lr, g.beta1, g.beta2, g.eps, g.weight_decay,
                                 g.momentum, g.dampening});
  }
  std::vector<uint8_t> frozen;
  for (int64_t id = 0; id < declared_.model.size(); ++id)
    frozen.push_back(declared_.model.at(id).frozen ? 1 : 0);
  const WindowFacts mine{passes_, run_.micro_steps + 1,
                         XXH3_64bits(values.data(), values.size() * sizeof(double)),
                         XXH3_64bits(frozen.data(), frozen.size())};
  const auto [first, other, lowest, rank] = comm::compare(committed_.control, mine, "begin a step");
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

Bits Window::present() const {
  Bits present(declared_.model.size());
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    if (reducer_.is_present(id)) present.set(id);
  }
  return present;
}

// Gradients are sums over ranks of scaled gradients; both factors go here, once, in double. The
// scale is that of the window's passes: it changes only once the window is over.
double Window::mean() const {
  const double steps = !declared_.config.divide_at_step     ? 1
                       : declared_.config.divide_by_counted ? static_cast<double>(steps_ + 1)
                                                            : declared_.config.accumulation_steps;
  return 1.0 / mean_ranks() / steps / run_.scaler.scale();
}

bool Window::skips_nonfinite() const {
  return declared_.config.check_overflow || run_.outliers.is_on() ||
         declared_.config.optimizer.gradient_clipping > 0;
}

Decision Window::decide_there() {
  Decision d;
  d.present = present();
  d.mean = mean();
  if (reduced_->mine.discard) {
    d.skip = OTR_SKIP_ABANDONED;
  } else if (seed_overflow_) {
    d.skip = OTR_SKIP_SEED_OVERFLOW;
  }
  device_decision_->decide({.mean = d.mean,
                            .clipping = declared_.config.optimizer.gradient_clipping,
                            .skip = d.skip,
                            .skip_nonfinite = skips_nonfinite() ? OTR_SKIP_NONFINITE : 0});
  return d;
}

void Window::complete(Decision& d, const device::Decided& there) const {
  d.skip = there.skip;
  d.norm = there.norm;
  d.clip = there.clip;
  d.nonfinite_count = there.total.nonfinite;
  if (d.nonfinite_count > 0) {
    d.nonfinite_param = committed_.layout.parameter_at(there.origin.flat);
    d.nonfinite_rank = there.origin.rank;
  }
  if (d.skip == OTR_SKIP_SEED_OVERFLOW) d.nonfinite_rank = committed_.control.rank();
}

Decision Window::agree_on_gradients(const Summed& summed) {
  GradientFacts facts;
  facts.norm = summed.norm;
  facts.origin = summed.origin;
  if (seed_overflow_) facts.seed_overflow = committed_.control.rank();
  facts.discard = summed.discard ? 1 : 0;
  facts.updated = reduced_->updated ? 1 : 0;
  Decision d;
  d.present = present();
  agree(committed_.control, facts, d.present);
  const kernels::NormSum& norm = facts.norm;
  d.updated = facts.updated != 0;
  d.nonfinite_count = norm.nonfinite;
  if (norm.nonfinite > 0) {
    d.nonfinite_param = committed_.layout.parameter_at(facts.origin.flat);
    d.nonfinite_rank = facts.origin.rank;
  }
  d.mean = mean();
  d.norm = optimizer::norm_of(norm) * d.mean;
  if (facts.discard != 0) {
    d.skip = OTR_SKIP_ABANDONED;
  } else if (facts.seed_overflow != kNoRank) {
    d.skip = OTR_SKIP_SEED_OVERFLOW;
    d.nonfinite_rank = facts.seed_overflow;
  } else if (norm.nonfinite > 0 && skips_nonfinite()) {
    d.skip = OTR_SKIP_NONFINITE;
  } else if (run_.outliers.is_outlier(d.norm)) {
    d.skip = OTR_SKIP_OUTLIER;
  }
  if (norm.nonfinite == 0) {
    d.clip = optimizer::clip_coefficient(d.norm, declared_.config.optimizer.gradient_clipping);
  }
  return d;
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// An engine's progress, taken and set between two windows.
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "core/base/bits.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/engine/engine.h"
#include "core/engine/progress.h"

namespace outrigger::engine {
namespace {

constexpr const char* kTake = "otr_engine_get_progress";
constexpr const char* kSet = "otr_engine_set_progress";

}  // namespace

void Engine::require_between_windows(const char* call) const {
  require(State::committed, call);
  require_no_pass(call);
  if (passes_in_window_ == 0 && steps_in_window_ == 0 && !reduced_) return;
  fail(OTR_E_STATE,
       "{}: {} passes of this window were taken already, and gradients are no part of a progress: "
       "end the window with otr_engine_step, or drop it with otr_engine_discard",
       call, passes_in_window_);
}

std::vector<int64_t> Engine::trainable_roots() const {
  std::vector<int64_t> roots;
  for (int64_t id = 0; id < model_.size(); ++id) {
    if (model_.at(id).root == id && model_.at(id).trainable) roots.push_back(id);
  }
  return roots;
}

Progress Engine::progress() const {
  require_between_windows(kTake);
  Progress p;
  p.micro_steps = micro_steps_;
  p.applied_steps = applied_steps_;
  p.skipped_steps = skipped_steps_;
  p.boundary = boundary_;
  p.loss_scaler = scaler_.state();
  p.outlier_norms.assign(outliers_.norms().begin(), outliers_.norms().end());
  for (size_t g = 0; g < groups_.size(); ++g) {
    Progress::Group& group = p.groups.emplace_back(Progress::Group{model_.groups()[g], {}});
    for (const std::string_view name : config::free_hyperparameters(groups_[g])) {
      group.values.emplace_back(name, config::get_hyperparameter(groups_[g], name));
    }
  }
  const std::vector<int64_t> roots = trainable_roots();
  p.trainable = static_cast<int64_t>(roots.size());
  std::map<int64_t, int64_t> counts;
  for (const int64_t root : roots) {
    if (model_.at(root).frozen) p.frozen.push_back(model_.at(root).name);
    ++counts[updates_[static_cast<size_t>(root)]];
  }
  const auto usual = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
  if (usual != counts.end()) p.usual_updates = usual->first;
  for (const int64_t root : roots) {
    const int64_t updates = updates_[static_cast<size_t>(root)];
    if (updates != p.usual_updates) p.other_updates.emplace_back(model_.at(root).name, updates);
  }
  p.made_with = circumstances();
  return p;
}

Progress::Circumstances Engine::circumstances() const {
  return {control_->size(), config_.order == config::Order::boundary ? "boundary" : "micro_step",
          config_.optimizer.seed};
}

int64_t Engine::trainable_root(const std::string& name) const {
  const int64_t id = model_.id_of(name);
  if (model_.at(id).root == id && model_.at(id).trainable) return id;
  fail(OTR_E_CONFIG,
       "{}: \"{}\" is an alias or was declared frozen here, and counts updates in the progress",
       kSet, name);
}

void Engine::set_progress(std::string_view json) {
  require_between_windows(kSet);
  const Progress p = parse_progress(json);
  // All that can be refused comes before anything is changed.
  const std::vector<int64_t> roots = trainable_roots();
  if (p.trainable != static_cast<int64_t>(roots.size())) {
    fail(OTR_E_CONFIG, "{}: the progress is that of {} trainable parameters, and this model has {}",
         kSet, p.trainable, roots.size());
  }
  std::vector<config::OptimizerConfig> groups = groups_;
  for (const Progress::Group& group : p.groups) {
    config::OptimizerConfig& own = groups[static_cast<size_t>(model_.group_of(group.name))];
    for (const auto& [name, value] : group.values) config::set_hyperparameter(own, name, value);
  }
  std::vector<int64_t> updates(updates_.size(), 0);
  for (const int64_t root : roots) updates[static_cast<size_t>(root)] = p.usual_updates;
  for (const auto& [name, count] : p.other_updates) {
    updates[static_cast<size_t>(trainable_root(name))] = count;
  }
  Bits frozen(model_.size());
  for (const std::string& name : p.frozen) frozen.set(trainable_root(name));

  collective(kSet, Again::at_first, [&] {
    const auto compared = comm::compare(*control_, uint64_t{XXH3_64bits(json.data(), json.size())},
                                        "set the progress");
    if (compared.rank >= 0) {
      fail(OTR_E_MISMATCH,
           "{}: rank 0 and rank {} set different ones: every rank sets the same text", kSet,
           compared.rank);
    }
  });
  if (const Progress::Circumstances here = circumstances(); !(p.made_with == here)) {
    context_->log(OTR_LOG_WARNING,
                  format_text("this run goes on with {} ranks, reduction order \"{}\" and seed {}, "
                              "and was made with {}, \"{}\" and {}: it is as right, but its bits "
                              "are not those of a run that was not stopped",
                              here.world, here.reduction_order, here.seed, p.made_with.world,
                              p.made_with.reduction_order, p.made_with.seed));
  }
  micro_steps_ = p.micro_steps;
  applied_steps_ = p.applied_steps;
  skipped_steps_ = p.skipped_steps;
  boundary_ = p.boundary;
  scaler_.restore(p.loss_scaler);
  outliers_.restore(p.outlier_norms);
  groups_ = std::move(groups);
  updates_ = std::move(updates);
  const std::unique_lock lock(life_mutex_);
  for (const int64_t root : roots) model_.set_frozen(root, frozen[root]);
}

}  // namespace outrigger::engine

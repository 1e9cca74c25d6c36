// SPDX-License-Identifier: Apache-2.0
// An engine's progress, taken and set between two windows.
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>

#include "core/base/bits.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/verdict.h"
#include "core/engine/engine.h"
#include "core/engine/progress.h"

namespace outrigger::engine {
namespace {

constexpr const char* kTake = "otr_engine_get_progress";
constexpr const char* kSet = "otr_engine_set_progress";

std::string text_of(const Progress::Circumstances& c) {
  return format_text("{} ranks, reduction order \"{}\", seed {} and optimizer \"{}\"", c.world,
                     c.reduction_order, c.seed, config::printable(c.optimizer));
}

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
  p.model = model_hash();
  p.made_with = circumstances();
  return p;
}

Progress::Circumstances Engine::circumstances() const {
  return {control_->size(), config_.order == config::Order::boundary ? "boundary" : "micro_step",
          config_.optimizer.seed, config_.optimizer.type};
}

// Of the names and shapes of trainable parameters, in whatever order they were declared.
std::string Engine::model_hash() const {
  std::vector<std::string> lines;
  for (const int64_t root : trainable_roots()) {
    std::string& line = lines.emplace_back(model_.at(root).name);
    for (const int64_t n : model_.at(root).shape) line += format_text("\n{}", n);
  }
  std::ranges::sort(lines);
  uint64_t hash = lines.size();
  for (const std::string& line : lines) {
    hash = XXH3_64bits_withSeed(line.data(), line.size(), hash);
  }
  return format_text("{:016x}", hash);
}

int64_t Engine::trainable_root(const std::string& name) const {
  const int64_t id = model_.id_of(name);
  if (model_.at(id).root == id && model_.at(id).trainable) return id;
  fail(OTR_E_CONFIG,
       "{}: \"{}\" is an alias or was declared frozen here, and counts updates in the progress",
       kSet, name);
}

// Hyperparameters of all groups as the progress has them.
std::vector<config::OptimizerConfig> Engine::groups_of(const Progress& p) const {
  std::vector<config::OptimizerConfig> groups = groups_;
  Bits given(static_cast<int64_t>(groups.size()));
  for (const Progress::Group& group : p.groups) {
    const int32_t index = model_.group_of(group.name);
    given.set(index);
    config::OptimizerConfig& own = groups[static_cast<size_t>(index)];
    const auto names = std::views::keys(group.values);
    // Not given beside lr, it followed that.
    own.adam_lr_follows = own.rule == kernels::Rule::muon &&
                          std::ranges::find(names, "lr") != names.end() &&
                          std::ranges::find(names, "adam_lr") == names.end();
    try {
      for (const auto& [name, value] : group.values) config::set_hyperparameter(own, name, value);
    } catch (const Error& error) {
      fail(error.status(), "{}: in group \"{}\", {}", kSet, group.name, error.what());
    }
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    if (given[static_cast<int64_t>(g)]) continue;
    fail(OTR_E_CONFIG, "{}: the progress has no group \"{}\"", kSet, model_.groups()[g]);
  }
  return groups;
}

Engine::Resumed Engine::resumed(std::string_view json) const {
  Resumed r{
      parse_progress(json), {}, std::vector<int64_t>(updates_.size(), 0), Bits(model_.size())};
  const std::vector<int64_t> roots = trainable_roots();
  if (r.progress.trainable != static_cast<int64_t>(roots.size())) {
    fail(OTR_E_CONFIG, "{}: the progress is that of {} trainable parameters, and this model has {}",
         kSet, r.progress.trainable, roots.size());
  }
  for (const int64_t root : roots) {
    r.updates[static_cast<size_t>(root)] = r.progress.usual_updates;
  }
  Bits counted(model_.size());
  for (const auto& [name, count] : r.progress.other_updates) {
    const int64_t root = trainable_root(name);
    if (counted[root]) fail(OTR_E_CONFIG, "{}: \"{}\" has two counts of updates", kSet, name);
    counted.set(root);
    r.updates[static_cast<size_t>(root)] = count;
  }
  for (const std::string& name : r.progress.frozen) r.frozen.set(trainable_root(name));
  r.groups = groups_of(r.progress);
  if (r.progress.model != model_hash()) {
    fail(OTR_E_CONFIG,
         "{}: the progress is that of a model with other names or shapes of trainable parameters",
         kSet);
  }
  return r;
}

// Whoever cannot set it tells the others instead of leaving them waiting.
void Engine::agree_on_progress(std::string_view json, const std::optional<Error>& trouble) {
  struct Facts {
    comm::Compared<uint64_t> text;
    comm::FirstVerdict verdict;
  };
  const uint64_t hash = XXH3_64bits(json.data(), json.size());
  const int32_t rank = control_->rank();
  Facts facts{{hash, hash, rank}, {}};
  if (trouble) facts.verdict.set(rank, trouble->status(), trouble->what());
  const auto merge = [](Facts& into, const Facts& from) {
    comm::merge(into.text, from.text);
    comm::merge_first(into.verdict, from.verdict);
  };
  collective(
      kSet, Again::at_first,
      [&] { comm::combine_value(*control_, facts, merge, "set the progress"); }, hash);
  if (trouble) throw Error(*trouble);
  if (facts.verdict.rank >= 0) {
    fail(OTR_E_ABORTED, "{}: rank {} could not, so no rank has: {}", kSet, facts.verdict.rank,
         std::string_view(facts.verdict.verdict.text));
  }
  if (facts.text.rank >= 0) {
    fail(OTR_E_MISMATCH, "{}: rank 0 and rank {} set different ones: every rank sets the same text",
         kSet, facts.text.rank);
  }
}

void Engine::set_progress(std::string_view json) {
  require_between_windows(kSet);
  // All that can be refused comes before anything is changed.
  std::optional<Resumed> read;
  std::optional<Error> trouble;
  try {
    read = resumed(json);
  } catch (const Error& error) {
    trouble = error;
  }
  agree_on_progress(json, trouble);
  const Progress& p = read->progress;
  if (const Progress::Circumstances here = circumstances(); !(p.made_with == here)) {
    context_->log(OTR_LOG_WARNING,
                  format_text("this run goes on with {}, and was made with {}: it is as right, but "
                              "its bits are not those of a run that was not stopped",
                              text_of(here), text_of(p.made_with)));
  }
  micro_steps_ = p.micro_steps;
  applied_steps_ = p.applied_steps;
  skipped_steps_ = p.skipped_steps;
  boundary_ = p.boundary;
  scaler_.restore(p.loss_scaler);
  outliers_.restore(p.outlier_norms);
  stuck_at_minimum_ = false;
  groups_ = std::move(read->groups);
  updates_ = std::move(read->updates);
  const std::unique_lock lock(life_mutex_);
  for (const int64_t root : trainable_roots()) model_.set_frozen(root, read->frozen[root]);
}

}  // namespace outrigger::engine

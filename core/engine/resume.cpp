// SPDX-License-Identifier: Apache-2.0
// A run's progress, taken and set between two windows.
#include <algorithm>
#include <mutex>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/document.h"
#include "core/engine/run.h"

namespace outrigger::engine {
namespace {

constexpr const char* kSet = "otr_engine_set_progress";

std::string text_of(const Progress::Circumstances& c) {
  return format_text("{} ranks{}, reduction order \"{}\", seed {} and optimizer \"{}\"", c.world,
                     c.groups == 1 ? "" : format_text(" in {} groups", c.groups), c.reduction_order,
                     c.seed, config::printable(c.optimizer));
}

Progress::Circumstances circumstances_of(const Declared& declared, int32_t groups) {
  return {declared.world, groups,
          declared.config.order == config::Order::boundary ? "boundary" : "micro_step",
          declared.config.optimizer.seed, declared.config.optimizer.type};
}

// Names and shapes of trainable parameters, each once, whatever the order they were declared in.
std::set<std::string> trainable_lines(const Declared& declared, const Names& names) {
  std::set<std::string> lines;
  for (const int64_t root : declared.trainable_roots()) {
    std::string line = names.of(root);
    for (const int64_t n : declared.model.at(root).shape) line += format_text("\n{}", n);
    lines.insert(std::move(line));
  }
  return lines;
}

std::vector<int64_t> trainable_roots(const layout::Model& model, const Names& names,
                                     const std::string& name) {
  std::vector<int64_t> ids = names.ids_of(name);
  for (const int64_t id : ids) {
    if (model.at(id).root == id && model.at(id).trainable) continue;
    fail(OTR_E_CONFIG,
         "{}: \"{}\" is an alias or was declared frozen here, and counts updates in the progress",
         kSet, name);
  }
  return ids;
}

// Hyperparameters of all groups as the progress has them.
std::vector<config::OptimizerConfig> groups_of(const Progress& p, const Declared& declared) {
  std::vector<config::OptimizerConfig> groups = declared.groups;
  Bits given(static_cast<int64_t>(groups.size()));
  for (const Progress::Group& group : p.groups) {
    const int32_t index = declared.model.group_of(group.name);
    given.set(index);
    config::OptimizerConfig& own = groups[static_cast<size_t>(index)];
    try {
      set_values(own, group);
    } catch (const Error& error) {
      fail(error.status(), "{}: in group \"{}\", {}", kSet, group.name, error.what());
    }
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    if (given[static_cast<int64_t>(g)]) continue;
    fail(OTR_E_CONFIG, "{}: the progress has no group \"{}\"", kSet, declared.model.groups()[g]);
  }
  return groups;
}

}  // namespace

Progress progress_of(const Declared& declared, const Run& run, int32_t groups) {
  Progress p;
  p.micro_steps = run.micro_steps;
  p.applied_steps = run.applied_steps;
  p.skipped_steps = run.skipped_steps;
  p.boundary = run.boundary;
  p.loss_scaler = run.scaler.state();
  p.outlier_norms.assign(run.outliers.norms().begin(), run.outliers.norms().end());
  for (size_t g = 0; g < declared.groups.size(); ++g) {
    p.groups.push_back(group_of(declared.model.groups()[g], declared.groups[g]));
  }
  const std::vector<int64_t> roots = declared.trainable_roots();
  p.trainable = static_cast<int64_t>(roots.size());
  std::vector<std::pair<std::string, int64_t>> updates;
  for (const int64_t root : roots) {
    const layout::Parameter& own = declared.model.at(root);
    if (own.frozen) p.frozen.push_back(own.name);
    updates.emplace_back(own.name, run.updates[static_cast<size_t>(root)]);
  }
  count_updates(p, updates);
  p.model = model_hash(trainable_lines(declared, Names(declared.model)));
  p.made_with = circumstances_of(declared, groups);
  return p;
}

Resumed read_progress(std::string_view json, const Declared& declared, const Names& names) {
  Resumed r{parse_progress(json),
            {},
            std::vector<int64_t>(static_cast<size_t>(declared.model.size()), 0),
            Bits(declared.model.size())};
  const std::set<std::string> lines = trainable_lines(declared, names);
  if (r.progress.trainable != static_cast<int64_t>(lines.size())) {
    fail(OTR_E_CONFIG, "{}: the progress is that of {} trainable parameters, and this model has {}",
         kSet, r.progress.trainable, lines.size());
  }
  for (const int64_t root : declared.trainable_roots()) {
    r.updates[static_cast<size_t>(root)] = r.progress.usual_updates;
  }
  Bits counted(declared.model.size());
  for (const auto& [name, count] : r.progress.other_updates) {
    for (const int64_t root : trainable_roots(declared.model, names, name)) {
      if (counted[root]) fail(OTR_E_CONFIG, "{}: \"{}\" has two counts of updates", kSet, name);
      counted.set(root);
      r.updates[static_cast<size_t>(root)] = count;
    }
  }
  for (const std::string& name : r.progress.frozen) {
    for (const int64_t root : trainable_roots(declared.model, names, name)) r.frozen.set(root);
  }
  r.groups = groups_of(r.progress, declared);
  if (r.progress.model != model_hash(lines)) {
    fail(OTR_E_CONFIG,
         "{}: the progress is that of a model with other names or shapes of trainable parameters",
         kSet);
  }
  return r;
}

void resume(Resumed resumed, Declared& declared, Run& run, int32_t groups) {
  const Progress& p = resumed.progress;
  if (const Progress::Circumstances here = circumstances_of(declared, groups);
      !(p.made_with == here)) {
    declared.context->log(
        OTR_LOG_WARNING,
        format_text("this run goes on with {}, and was made with {}: it is as right, but its bits "
                    "are not those of a run that was not stopped",
                    text_of(here), text_of(p.made_with)));
  }
  run.micro_steps = p.micro_steps;
  run.applied_steps = p.applied_steps;
  run.skipped_steps = p.skipped_steps;
  run.boundary = p.boundary;
  run.scaler.restore(p.loss_scaler);
  run.outliers.restore(p.outlier_norms);
  run.stuck_at_minimum = false;
  run.updates = std::move(resumed.updates);
  declared.groups = std::move(resumed.groups);
  const std::unique_lock lock(declared.mutex);
  for (const int64_t root : declared.trainable_roots()) {
    declared.model.set_frozen(root, resumed.frozen[root]);
  }
}

}  // namespace outrigger::engine

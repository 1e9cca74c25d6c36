// SPDX-License-Identifier: Apache-2.0
#include "core/engine/progress.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/members.h"

namespace outrigger::engine {
namespace {

using config::Kind;
using config::Members;
using config::ValueAt;
using Json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr std::array<const char*, 3> kBoundaries{"configured", "no", "yes"};  // by OTR_BOUNDARY_
constexpr config::Caps kCaps{
    .what = "the progress", .bytes = size_t{1} << 28, .values = size_t{1} << 23};

const config::Subject kSubject{"the progress"};

int64_t steps(const ValueAt& value) { return value.integer<int64_t>(0, kMostSteps); }

void read_steps(Progress& p, const ValueAt& value) {
  Members m(value);
  p.micro_steps = steps(m.take("micro"));
  p.applied_steps = steps(m.take("applied"));
  p.skipped_steps = steps(m.take("skipped"));
  m.require_all_taken();
  if (p.micro_steps < p.applied_steps + p.skipped_steps) {
    fail(OTR_E_CONFIG,
         "the progress: {} steps were applied and {} skipped, which is more than the {} made",
         p.applied_steps, p.skipped_steps, p.micro_steps);
  }
}

void read_loss_scaler(Progress& p, const ValueAt& value) {
  Members m(value);
  const ValueAt scale = m.take("scale");
  p.loss_scaler.scale = scale.number();
  if (p.loss_scaler.scale < 0) scale.refuse("at least 0");
  p.loss_scaler.windows = steps(m.take("windows"));
  p.loss_scaler.last_overflow =
      m.take("last_overflow").integer<int64_t>(-1, p.loss_scaler.windows - 1);
  p.loss_scaler.hysteresis_left = m.take("hysteresis_left").integer<int64_t>(1, kMostSteps);
  m.require_all_taken();
}

void read_groups(Progress& p, const ValueAt& value) {
  for (const auto& [name, group] : value.entries()) {
    Progress::Group& read = p.groups.emplace_back(Progress::Group{name, {}});
    for (const auto& [key, number] : group.entries())
      read.values.emplace_back(key, number.number());
  }
}

void read_parameters(Progress& p, const ValueAt& value) {
  Members m(value);
  p.trainable = steps(m.take("trainable"));
  for (const ValueAt& name : m.take("frozen").list()) p.frozen.push_back(name.text());
  p.model = m.take("model").text();
  p.usual_updates = steps(m.take("updates"));
  for (const ValueAt& other : m.take("other_updates").list()) {
    const std::vector<ValueAt> pair = other.list();
    if (pair.size() != 2) other.refuse("a list of a name and a number of updates");
    p.other_updates.emplace_back(pair[0].text(), steps(pair[1]));
  }
  m.require_all_taken();
}

void read_circumstances(Progress& p, const ValueAt& value) {
  Members m(value);
  p.made_with.world = m.take("world").integer(1, std::numeric_limits<int32_t>::max());
  p.made_with.groups = m.take("groups").integer(1, std::numeric_limits<int32_t>::max());
  const ValueAt order = m.take("reduction_order");
  p.made_with.reduction_order = order.text();
  if (p.made_with.reduction_order != "boundary" && p.made_with.reduction_order != "micro_step") {
    order.refuse("\"boundary\" or \"micro_step\"");
  }
  p.made_with.optimizer = m.take("optimizer").text();
  p.made_with.seed = m.take("seed").integer<uint64_t>(0, std::numeric_limits<uint64_t>::max());
  m.require_all_taken();
}

}  // namespace

std::string to_json(const Progress& p) {
  Json groups = Json::object();
  for (const Progress::Group& group : p.groups) {
    Json& values = groups[group.name] = Json::object();
    for (const auto& [name, value] : group.values) values[name] = value;
  }
  Json others = Json::array();
  for (const auto& [name, updates] : p.other_updates) others.push_back({name, updates});
  const Json json = {
      {"version", kVersion},
      {"steps",
       {{"micro", p.micro_steps}, {"applied", p.applied_steps}, {"skipped", p.skipped_steps}}},
      {"boundary", kBoundaries.at(static_cast<size_t>(p.boundary))},
      {"loss_scaler",
       {{"scale", p.loss_scaler.scale},
        {"windows", p.loss_scaler.windows},
        {"last_overflow", p.loss_scaler.last_overflow},
        {"hysteresis_left", p.loss_scaler.hysteresis_left}}},
      {"outlier_norms", p.outlier_norms},
      {"groups", groups},
      {"parameters",
       {{"trainable", p.trainable},
        {"frozen", p.frozen},
        {"model", p.model},
        {"updates", p.usual_updates},
        {"other_updates", others}}},
      {"made_with",
       {{"world", p.made_with.world},
        {"groups", p.made_with.groups},
        {"reduction_order", p.made_with.reduction_order},
        {"seed", p.made_with.seed},
        {"optimizer", p.made_with.optimizer}}}};
  return json.dump();
}

Progress parse_progress(std::string_view json) {
  const config::Node root = config::parse_document(json, kCaps);
  Progress p;
  Members m(ValueAt(kSubject, root));
  const ValueAt version = m.take("version");
  if (version.node().kind == Kind::integer && version.node().scalar > kVersion) {
    fail(OTR_E_CONFIG, "the progress has version {}; this release reads up to {}: use a later one",
         version.node().shown, kVersion);
  }
  static_cast<void>(version.integer<int64_t>(1, kVersion));
  read_steps(p, m.take("steps"));
  const ValueAt boundary = m.take("boundary");
  const auto known = std::ranges::find(kBoundaries, boundary.text());
  if (known == kBoundaries.end()) boundary.refuse("\"configured\", \"no\" or \"yes\"");
  p.boundary = static_cast<int32_t>(known - kBoundaries.begin());
  read_loss_scaler(p, m.take("loss_scaler"));
  for (const ValueAt& norm : m.take("outlier_norms").list()) {
    p.outlier_norms.push_back(norm.number());
    if (p.outlier_norms.back() < 0) norm.refuse("at least 0");
  }
  read_groups(p, m.take("groups"));
  read_parameters(p, m.take("parameters"));
  read_circumstances(p, m.take("made_with"));
  m.require_all_taken();
  return p;
}

std::string model_hash(const std::set<std::string>& lines) {
  uint64_t hash = lines.size();
  for (const std::string& line : lines) {
    hash = XXH3_64bits_withSeed(line.data(), line.size(), hash);
  }
  return format_text("{:016x}", hash);
}

void count_updates(Progress& progress, const std::vector<std::pair<std::string, int64_t>>& counts) {
  std::map<int64_t, int64_t> times;
  for (const auto& [name, updates] : counts) ++times[updates];
  const auto usual = std::ranges::max_element(times, {}, [](const auto& t) { return t.second; });
  if (usual != times.end()) progress.usual_updates = usual->first;
  for (const auto& [name, updates] : counts) {
    if (updates != progress.usual_updates) progress.other_updates.emplace_back(name, updates);
  }
}

Progress::Group group_of(std::string name, const config::OptimizerConfig& optimizer) {
  Progress::Group group{std::move(name), {}};
  for (const std::string_view value : config::free_hyperparameters(optimizer)) {
    group.values.emplace_back(value, config::get_hyperparameter(optimizer, value));
  }
  return group;
}

void set_values(config::OptimizerConfig& optimizer, const Progress::Group& group) {
  const auto names = std::views::keys(group.values);
  // Not given beside lr, it followed that.
  optimizer.adam_lr_follows = optimizer.rule == kernels::Rule::muon &&
                              std::ranges::find(names, "lr") != names.end() &&
                              std::ranges::find(names, "adam_lr") == names.end();
  for (const auto& [name, value] : group.values) {
    config::set_hyperparameter(optimizer, name, value);
  }
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
#include "core/engine/progress.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/document.h"

namespace outrigger::engine {
namespace {

using config::Kind;
using config::Node;
using Json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr std::array<const char*, 3> kBoundaries{"configured", "no", "yes"};  // by OTR_BOUNDARY_
constexpr config::Caps kCaps{
    .what = "the progress", .bytes = size_t{1} << 28, .values = size_t{1} << 23};

[[noreturn]] void refuse(const Node& node, const std::string& path, std::string_view legal) {
  fail(OTR_E_CONFIG, "the progress, {}: {} = {}; legal is {}", config::line_of(node.at),
       path.empty() ? "it" : path, node.shown, legal);
}

const Node& expect(const Node& node, Kind kind, const std::string& path, const char* legal) {
  if (node.kind != kind) refuse(node, path, legal);
  return node;
}

template <typename T>
T integer(const Node& node, const std::string& path, T low, T high) {
  bool in_range = node.kind == Kind::integer;
  if (in_range && node.scalar.is_number_unsigned()) {
    const auto value = node.scalar.get<uint64_t>();
    in_range = std::cmp_greater_equal(value, low) && std::cmp_less_equal(value, high);
  } else if (in_range) {
    const auto value = node.scalar.get<int64_t>();
    in_range = std::cmp_greater_equal(value, low) && std::cmp_less_equal(value, high);
  }
  if (!in_range) refuse(node, path, format_text("an integer from {} to {}", low, high));
  return node.scalar.get<T>();
}

double number(const Node& node, const std::string& path) {
  if (node.kind != Kind::number && node.kind != Kind::integer) refuse(node, path, "a number");
  return node.scalar.get<double>();
}

std::string text(const Node& node, const std::string& path) {
  return expect(node, Kind::text, path, "a string").scalar.get<std::string>();
}

std::span<const Node> list(const Node& node, const std::string& path) {
  return expect(node, Kind::list, path, "a list").items;
}

// The members of an object, each of which is taken once.
class Members {
 public:
  Members(const Node& node, std::string path)
      : node_(&expect(node, Kind::object, path, "an object")), path_(std::move(path)) {}

  [[nodiscard]] std::string path_of(std::string_view name) const {
    return path_.empty() ? std::string(name) : format_text("{}.{}", path_, name);
  }
  const Node& take(std::string_view name) {
    const auto found = std::ranges::find(node_->members, name, &config::Member::name);
    if (found == node_->members.end()) {
      fail(OTR_E_CONFIG, "the progress, {}: {} is missing", config::line_of(node_->at),
           path_of(name));
    }
    known_.emplace_back(name);
    return found->value;
  }
  template <typename T>
  T integer(std::string_view name, T low, T high) {
    return engine::integer(take(name), path_of(name), low, high);
  }
  int64_t steps(std::string_view name) { return integer<int64_t>(name, 0, kMostSteps); }
  // After the last.
  void require_all_taken() const {
    if (known_.size() == node_->members.size()) return;
    for (const config::Member& member : node_->members) {
      if (std::ranges::find(known_, member.name) != known_.end()) continue;
      fail(OTR_E_CONFIG, "the progress, {}: {} is not known", config::line_of(member.at),
           path_of(config::printable(member.name)));
    }
  }

 private:
  const Node* node_;
  std::string path_;
  std::vector<std::string> known_;
};

void read_steps(Progress& p, const Node& node) {
  Members m(node, "steps");
  p.micro_steps = m.steps("micro");
  p.applied_steps = m.steps("applied");
  p.skipped_steps = m.steps("skipped");
  m.require_all_taken();
  if (p.micro_steps < p.applied_steps + p.skipped_steps) {
    fail(OTR_E_CONFIG,
         "the progress: {} steps were applied and {} skipped, which is more than the {} made",
         p.applied_steps, p.skipped_steps, p.micro_steps);
  }
}

void read_loss_scaler(Progress& p, const Node& node) {
  Members m(node, "loss_scaler");
  const Node& scale = m.take("scale");
  p.loss_scaler.scale = number(scale, "loss_scaler.scale");
  if (p.loss_scaler.scale < 0) refuse(scale, "loss_scaler.scale", "at least 0");
  p.loss_scaler.windows = m.steps("windows");
  p.loss_scaler.last_overflow = m.integer<int64_t>("last_overflow", -1, p.loss_scaler.windows - 1);
  p.loss_scaler.hysteresis_left = m.integer<int64_t>("hysteresis_left", 1, kMostSteps);
  m.require_all_taken();
}

void read_groups(Progress& p, const Node& node) {
  for (const config::Member& group : expect(node, Kind::object, "groups", "an object").members) {
    const std::string path = format_text("groups.{}", config::printable(group.name));
    Progress::Group& read = p.groups.emplace_back(Progress::Group{group.name, {}});
    for (const config::Member& value :
         expect(group.value, Kind::object, path, "an object").members) {
      read.values.emplace_back(value.name,
                               number(value.value, format_text("{}.{}", path, value.name)));
    }
  }
}

void read_parameters(Progress& p, const Node& node) {
  Members m(node, "parameters");
  p.trainable = m.steps("trainable");
  for (const Node& name : list(m.take("frozen"), "parameters.frozen")) {
    p.frozen.push_back(text(name, "a name in parameters.frozen"));
  }
  p.model = text(m.take("model"), "parameters.model");
  p.usual_updates = m.steps("updates");
  for (const Node& other : list(m.take("other_updates"), "parameters.other_updates")) {
    constexpr const char* kPath = "an entry of parameters.other_updates";
    if (other.kind != Kind::list || other.items.size() != 2) {
      refuse(other, kPath, "a list of a name and a number of updates");
    }
    p.other_updates.emplace_back(text(other.items[0], kPath),
                                 integer<int64_t>(other.items[1], kPath, 0, kMostSteps));
  }
  m.require_all_taken();
}

void read_circumstances(Progress& p, const Node& node) {
  Members m(node, "made_with");
  p.made_with.world = m.integer("world", 1, std::numeric_limits<int32_t>::max());
  p.made_with.groups = m.integer("groups", 1, std::numeric_limits<int32_t>::max());
  const Node& order = m.take("reduction_order");
  p.made_with.reduction_order = text(order, "made_with.reduction_order");
  if (p.made_with.reduction_order != "boundary" && p.made_with.reduction_order != "micro_step") {
    refuse(order, "made_with.reduction_order", "\"boundary\" or \"micro_step\"");
  }
  p.made_with.optimizer = text(m.take("optimizer"), "made_with.optimizer");
  p.made_with.seed = m.integer<uint64_t>("seed", 0, std::numeric_limits<uint64_t>::max());
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
  const Node root = config::parse_document(json, kCaps);
  Progress p;
  Members m(root, "");
  const Node& version = m.take("version");
  if (version.kind == Kind::integer && version.scalar > kVersion) {
    fail(OTR_E_CONFIG, "the progress has version {}; this release reads up to {}: use a later one",
         version.shown, kVersion);
  }
  static_cast<void>(integer<int64_t>(version, "version", 1, kVersion));
  read_steps(p, m.take("steps"));
  const Node& boundary = m.take("boundary");
  const auto known = std::ranges::find(kBoundaries, text(boundary, "boundary"));
  if (known == kBoundaries.end()) {
    refuse(boundary, "boundary", "\"configured\", \"no\" or \"yes\"");
  }
  p.boundary = static_cast<int32_t>(known - kBoundaries.begin());
  read_loss_scaler(p, m.take("loss_scaler"));
  for (const Node& norm : list(m.take("outlier_norms"), "outlier_norms")) {
    p.outlier_norms.push_back(number(norm, "a norm in outlier_norms"));
    if (p.outlier_norms.back() < 0) refuse(norm, "a norm in outlier_norms", "at least 0");
  }
  read_groups(p, m.take("groups"));
  read_parameters(p, m.take("parameters"));
  read_circumstances(p, m.take("made_with"));
  m.require_all_taken();
  return p;
}

}  // namespace outrigger::engine

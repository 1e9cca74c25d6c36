// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "fault.h"

namespace outrigger::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kComparedAtATime = int64_t{1} << 20;  // elements

template <typename Ask>
Json asked(const Ask& ask) {
  size_t size = 0;
  check(ask(nullptr, &size));
  std::string text(size, '\0');
  check(ask(text.data(), &size));
  text.resize(size - 1);
  return Json::parse(text);
}

std::map<std::string, const Json*> by_name(const Checkpoint& checkpoint) {
  std::map<std::string, const Json*> found;
  for (const Json& p : checkpoint.description()["parameters"]) {
    found.emplace(p["name"].get<std::string>(), &p);
  }
  return found;
}

// A frozen weight and a trained one are compared as the weight that they are.
std::vector<std::string> states_of(const Json& parameter) {
  auto states = parameter["states"].get<std::vector<std::string>>();
  for (std::string& state : states) {
    if (state == "published") state = "master";
  }
  return states;
}

int32_t value_of(const std::string& state) {
  return state == "exp_avg"      ? OTR_VALUE_EXP_AVG
         : state == "exp_avg_sq" ? OTR_VALUE_EXP_AVG_SQ
                                 : OTR_VALUE_MASTER;
}

int64_t elements_of(const Json& parameter) {
  int64_t count = 1;
  for (const Json& extent : parameter["shape"]) count *= extent.get<int64_t>();
  return count;
}

struct Distance {
  int64_t differing = 0;
  double most = 0;  // NaN where one is no number and the other is
  void add(float a, float b) {
    if (a == b || (std::isnan(a) && std::isnan(b))) return;
    ++differing;
    const double d = std::abs(static_cast<double>(a) - static_cast<double>(b));
    most = std::isnan(d) || std::isnan(most) ? std::nan("") : std::max(most, d);
  }
};

Distance distance_of(const Checkpoint& one, const Checkpoint& other, const std::string& name,
                     int32_t value, int64_t count) {
  Distance distance;
  std::vector<float> a, b;
  for (int64_t first = 0; first < count; first += kComparedAtATime) {
    const int64_t n = std::min(kComparedAtATime, count - first);
    a.resize(static_cast<size_t>(n));
    b.resize(static_cast<size_t>(n));
    check(otr_checkpoint_read(one.get(), name.c_str(), value, first, n, a.data()));
    check(otr_checkpoint_read(other.get(), name.c_str(), value, first, n, b.data()));
    for (size_t i = 0; i < a.size(); ++i) distance.add(a[i], b[i]);
  }
  return distance;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& directory, const std::string& tag) {
  otr_checkpoint* opened = nullptr;
  check(otr_checkpoint_open(directory.c_str(), tag.empty() ? nullptr : tag.c_str(), &opened));
  handle_.reset(opened);
  description_ = asked(
      [&](char* buffer, size_t* size) { return otr_checkpoint_describe(opened, buffer, size); });
}

Json checkpoints_in(const std::string& directory) {
  return asked([&](char* buffer, size_t* size) {
    return otr_checkpoint_list(directory.c_str(), buffer, size);
  });
}

Json differences(const Checkpoint& one, const Checkpoint& other) {
  Json found = Json::array();
  const auto here = by_name(one), there = by_name(other);
  const auto note = [&](const std::string& name, const Json& state, const char* what) {
    found.push_back({{"parameter", name}, {"state", state}, {"what", what}});
  };
  for (const auto& [name, parameter] : here) {
    const auto match = there.find(name);
    if (match == there.end()) {
      note(name, nullptr, "only in the first");
      continue;
    }
    if ((*parameter)["shape"] != (*match->second)["shape"]) {
      note(name, nullptr, "the shapes differ");
      continue;
    }
    const auto states = states_of(*parameter), others = states_of(*match->second);
    for (const std::string& state : states) {
      if (std::ranges::find(others, state) == others.end()) {
        note(name, state, "only in the first");
        continue;
      }
      const Distance distance =
          distance_of(one, other, name, value_of(state), elements_of(*parameter));
      if (distance.differing == 0) continue;
      note(name, state, "the values differ");
      found.back()["differing"] = distance.differing;
      found.back()["max_abs"] = distance.most;
      if (!std::isfinite(distance.most)) found.back()["max_abs"] = nullptr;
    }
    for (const std::string& state : others) {
      if (std::ranges::find(states, state) == states.end()) note(name, state, "only in the second");
    }
  }
  for (const auto& [name, parameter] : there) {
    if (!here.contains(name)) note(name, nullptr, "only in the second");
  }
  return found;
}

}  // namespace outrigger::tools

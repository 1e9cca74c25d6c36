// SPDX-License-Identifier: Apache-2.0
// Which parameter of a checkpoint each one here takes.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.h"
#include "core/engine/checkpoints.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

using checkpoint::Manifest;

namespace {

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += format_text("{}\"{}\"", i == 0 ? "" : ", ", printable(names[i]));
  }
  if (names.size() > kShown) text += format_text(" and {} more", names.size() - kShown);
  return text;
}

// Rows that are in both come first in both, so no other dimension may differ.
void require_shape(const layout::Parameter& here, const Manifest::Parameter& there, bool resized) {
  if (std::ranges::equal(there.shape, here.shape)) return;
  const bool by_rows =
      !here.shape.empty() && there.shape.size() == here.shape.size() &&
      std::equal(there.shape.begin() + 1, there.shape.end(), here.shape.begin() + 1);
  if (resized && by_rows) return;
  fail(OTR_E_SHAPE, "{}: parameter \"{}\" has shape {} here and {} in the checkpoint{}", kLoadCall,
       here.name, tensor::text_of(here.shape), tensor::text_of(there.shape),
       resized   ? ": only the first dimension of a resized one may differ"
       : by_rows ? ". Take the rows that are in both with load_options.resized, weights only"
                 : "");
}

// Where all that is missing here is there with one more beginning, or the other way round.
std::string renaming_for(const std::vector<std::string>& missing,
                         const std::vector<std::string>& extra) {
  if (missing.empty()) return "";
  const auto beginning = [&](const std::vector<std::string>& shorter,
                             const std::vector<std::string>& longer) -> std::string {
    const std::set<std::string_view> known(longer.begin(), longer.end());
    for (const std::string& name : longer) {
      if (!name.ends_with("." + shorter.front())) continue;
      const std::string more = name.substr(0, name.size() - shorter.front().size());
      const bool fits = std::ranges::all_of(
          shorter, [&](const std::string& each) { return known.contains(more + each); });
      if (fits) return more;
    }
    return "";
  };
  if (const std::string more = beginning(missing, extra); !more.empty()) {
    return format_text("; load_options.renamed \"*\" here, \"{}*\" there takes them",
                       printable(more));
  }
  if (extra.empty()) return "";
  const std::string more = beginning(extra, missing);
  return more.empty() ? ""
                      : format_text("; load_options.renamed \"{}*\" here, \"*\" there takes them",
                                    printable(more));
}

}  // namespace

// Every parameter that is in both and that the load takes, by its id: its number in the checkpoint.
std::map<int64_t, int64_t> Checkpoints::match(const Manifest& manifest, const Selection& selection,
                                              bool strict) const {
  std::map<std::string_view, int64_t> saved;
  std::vector<std::string> names;
  for (size_t i = 0; i < manifest.parameters.size(); ++i) {
    saved.emplace(manifest.parameters[i].name, static_cast<int64_t>(i));
    names.push_back(manifest.parameters[i].name);
  }
  std::map<int64_t, int64_t> matched;
  Bits found(declared_.model.size());
  std::set<std::string_view> taken;
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    if (!selection.takes(id)) continue;
    const auto at = saved.find(selection.names().of(id));
    if (at == saved.end()) continue;
    const Manifest::Parameter& there = manifest.parameters[static_cast<size_t>(at->second)];
    require_shape(declared_.model.at(id), there, selection.resizes(id));
    matched.emplace(id, there.root);
    found.set(id);
    taken.insert(at->first);
  }
  selection.require_useful(found, names);
  // Tied parameters have one value: of several names there, any will do, if all are tied there.
  for (const auto& [id, there] : std::map(matched)) {
    const auto [root, is_new] = matched.emplace(declared_.model.at(id).root, there);
    if (is_new || root->second == there) continue;
    const std::string& name = declared_.model.at(id).name;
    const std::string& other = declared_.model.at(root->first).name;
    const auto there_of = [&](int64_t number) {
      return printable(manifest.parameters[static_cast<size_t>(number)].name);
    };
    fail(OTR_E_CONFIG,
         "{}: \"{}\" and \"{}\" are tied here, and have values of their own in the checkpoint "
         "(\"{}\" and \"{}\"): say with load_options.renamed which of them both take",
         kLoadCall, other, name, there_of(root->second), there_of(there));
  }
  std::set<int64_t> roots;
  for (const auto& [id, there] : matched) roots.insert(there);
  std::vector<std::string> missing, extra;
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    if (selection.takes(id) && !matched.contains(declared_.model.at(id).root)) {
      missing.push_back(selection.names().of(id));
    }
  }
  for (const Manifest::Parameter& there : manifest.parameters) {
    if (selection.chooses()) break;  // what was chosen leaves others behind
    if (!taken.contains(there.name) && !roots.contains(there.root)) extra.push_back(there.name);
  }
  if (strict && !(missing.empty() && extra.empty())) {
    fail(OTR_E_NOT_FOUND,
         "{}: the parameters differ:{}{}{}{}. Load what is in both with strict = 0 and weights "
         "only{}",
         kLoadCall, missing.empty() ? "" : " the checkpoint lacks ", listed(missing),
         extra.empty() ? "" : (missing.empty() ? " here are no " : "; here are no "), listed(extra),
         renaming_for(missing, extra));
  }
  if (matched.empty() && !missing.empty()) {
    fail(OTR_E_NOT_FOUND, "{}: the checkpoint has none of {}: {}{}", kLoadCall,
         selection.chooses() ? "what was chosen" : "the parameters of here", listed(missing),
         renaming_for(missing, names));
  }
  return matched;
}

// What the roots of all that is taken are called there, and what else.
Names Checkpoints::names_there(const Manifest& manifest,
                               const std::map<int64_t, int64_t>& matched) const {
  std::vector<std::string> names;
  std::multimap<int64_t, int64_t> takers;  // by number there
  for (int64_t id = 0; id < declared_.model.size(); ++id) {
    const int64_t root = declared_.model.at(id).root;
    const auto found = matched.find(root);
    const bool taken = found != matched.end();
    names.push_back(taken ? manifest.parameters[static_cast<size_t>(found->second)].name
                          : declared_.model.at(id).name);
    if (taken && root == id) takers.emplace(found->second, id);
  }
  Names all(declared_.model, std::move(names));
  for (const Manifest::Parameter& there : manifest.parameters) {
    const auto [begin, end] = takers.equal_range(there.root);
    for (auto taker = begin; taker != end; ++taker) all.add(there.name, taker->second);
  }
  return all;
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
#include "core/engine/selection.h"

#include <xxhash.h>

#include <map>
#include <set>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "core/base/glob.h"
#include "core/base/nearest.h"
#include "core/base/text.h"

namespace outrigger::engine {
namespace {

constexpr size_t kShownCharacters = 80;

std::string in_quotes(std::string_view text) {
  return format_text("\"{}\"", printable(text, kShownCharacters));
}

// Of the names, or for a pattern of their beginnings and ends at a dot or a slash.
std::string did_you_mean(std::string_view pattern, const std::vector<std::string>& names) {
  constexpr size_t kMost = 20'000;  // bounds the work for a model of very many names
  std::set<std::string> near;
  for (const std::string& name : names) {
    if (near.size() >= kMost) break;
    near.insert(name);
    if (!has_wildcards(pattern)) continue;
    for (size_t at = name.find_first_of("./"); at != std::string::npos;
         at = name.find_first_of("./", at + 1)) {
      near.insert(format_text("{}*", name.substr(0, at + 1)));
      near.insert(format_text("*{}", name.substr(at)));
    }
  }
  const std::vector<std::string> candidates(near.begin(), near.end());
  const std::string best = nearest(pattern, candidates);
  return best.empty() ? "" : format_text(": did you mean {}?", in_quotes(best));
}

std::vector<std::string> names_of(const layout::Model& model) {
  std::vector<std::string> names;
  for (int64_t id = 0; id < model.size(); ++id) names.push_back(model.at(id).name);
  return names;
}

bool is_beginning(std::string_view text) { return text.ends_with('*'); }
std::string_view without_star(std::string_view text) { return text.substr(0, text.size() - 1); }

void require_rename(const Rename& r, size_t index) {
  const auto wild = [](std::string_view text) {
    return has_wildcards(is_beginning(text) ? without_star(text) : text);
  };
  if (!r.here.empty() && !r.there.empty() && !wild(r.here) && !wild(r.there) &&
      is_beginning(r.here) == is_beginning(r.there)) {
    return;
  }
  fail(OTR_E_ARGUMENT,
       "load_options.renamed[{}] = {} here, {} there; legal are two names, or two beginnings of "
       "names that both end in one *",
       index, in_quotes(r.here), in_quotes(r.there));
}

}  // namespace

uint64_t Wish::hash() const {
  uint64_t hash = 0;
  const auto add = [&](std::string_view text) {
    hash = XXH3_64bits_withSeed(text.data(), text.size(), hash + text.size());
  };
  const auto add_all = [&](const std::vector<std::string>& texts) {
    add(std::to_string(texts.size()));
    for (const std::string& text : texts) add(text);
  };
  add_all(include);
  add_all(exclude);
  add_all(resized);
  for (const Rename& r : renamed) {
    add(r.here);
    add(r.there);
  }
  return hash;
}

Selection::Selection(const layout::Model& model, Wish wish)
    : model_(&model),
      wish_(std::move(wish)),
      renamed_by_(static_cast<size_t>(model.size()), -1),
      names_(model) {
  choose();
  resizes_ = meant(wish_.resized, "resized", true);
  if (!wish_.renamed.empty()) rename();
}

Bits Selection::meant(const std::vector<std::string>& patterns, const char* field,
                      bool taken) const {
  Bits roots(model_->size());
  for (size_t i = 0; i < patterns.size(); ++i) {
    bool any = false, any_taken = false;
    for (int64_t id = 0; id < model_->size(); ++id) {
      if (!glob_matches(patterns[i], model_->at(id).name)) continue;
      any = true;
      any_taken = any_taken || (taken && takes(id));
      roots.set(model_->at(id).root);
    }
    if (!any) {
      fail(OTR_E_NOT_FOUND, "load_options.{}[{}] = {} means no parameter{}", field, i,
           in_quotes(patterns[i]), did_you_mean(patterns[i], names_of(*model_)));
    }
    if (taken && !any_taken) {
      fail(OTR_E_ARGUMENT, "load_options.{}[{}] = {} means no parameter that this load takes",
           field, i, in_quotes(patterns[i]));
    }
  }
  return roots;
}

void Selection::choose() {
  const Bits included = meant(wish_.include, "include", false);
  const Bits excluded = meant(wish_.exclude, "exclude", false);
  takes_ = Bits(model_->size());
  bool any = false;
  for (int64_t id = 0; id < model_->size(); ++id) {
    const int64_t root = model_->at(id).root;
    if ((!wish_.include.empty() && !included[root]) || excluded[root]) continue;
    takes_.set(root);
    any = true;
  }
  if (!any && chooses()) {
    fail(
        OTR_E_ARGUMENT,
        "load_options.include and exclude leave no parameter to load: exclude goes before include, "
        "and of tied parameters all or none are loaded");
  }
}

// A whole name goes before a beginning: it is how an exception is said.
void Selection::rename() {
  std::map<std::string_view, int64_t> whole;
  std::vector<int64_t> beginnings;
  const auto refuse = [&](int64_t a, int64_t b, const std::string& name) {
    fail(OTR_E_ARGUMENT, "load_options.renamed[{}] and [{}] both rename {}", a, b, in_quotes(name));
  };
  for (size_t i = 0; i < wish_.renamed.size(); ++i) {
    const Rename& r = wish_.renamed[i];
    require_rename(r, i);
    const auto index = static_cast<int64_t>(i);
    if (is_beginning(r.here)) {
      beginnings.push_back(index);
    } else if (const auto [at, is_new] = whole.emplace(r.here, index); !is_new) {
      refuse(at->second, index, r.here);
    }
  }
  std::vector<std::string> there = names_of(*model_);
  Bits means(static_cast<int64_t>(wish_.renamed.size())), useful = means;
  for (int64_t id = 0; id < model_->size(); ++id) {
    const std::string& name = model_->at(id).name;
    int64_t& by = renamed_by_[static_cast<size_t>(id)];
    const auto exact = whole.find(name);
    for (const int64_t i : beginnings) {
      if (!name.starts_with(without_star(wish_.renamed[static_cast<size_t>(i)].here))) continue;
      means.set(i);
      if (exact != whole.end()) continue;
      if (by >= 0) refuse(by, i, name);
      by = i;
    }
    if (exact != whole.end()) by = exact->second;
    if (by < 0) continue;
    const Rename& r = wish_.renamed[static_cast<size_t>(by)];
    there[static_cast<size_t>(id)] =
        is_beginning(r.here)
            ? std::string(without_star(r.there)) + name.substr(without_star(r.here).size())
            : r.there;
    means.set(by);
    if (takes(id)) useful.set(by);
  }
  for (size_t i = 0; i < wish_.renamed.size(); ++i) {
    const std::string& here = wish_.renamed[i].here;
    if (!means[static_cast<int64_t>(i)]) {
      fail(OTR_E_NOT_FOUND, "load_options.renamed[{}]: {} means no parameter here{}", i,
           in_quotes(here), did_you_mean(here, names_of(*model_)));
    }
    if (!useful[static_cast<int64_t>(i)]) {
      fail(OTR_E_ARGUMENT, "load_options.renamed[{}]: {} renames no parameter that this load takes",
           i, in_quotes(here));
    }
  }
  names_ = Names(*model_, std::move(there));
  require_distinct();
}

void Selection::require_distinct() const {
  std::map<std::string_view, int64_t> takers;
  for (int64_t id = 0; id < model_->size(); ++id) {
    if (!takes(id)) continue;
    const auto [at, is_new] = takers.emplace(names_.of(id), id);
    if (is_new || model_->at(at->second).root == model_->at(id).root) continue;
    fail(OTR_E_ARGUMENT,
         "load_options.renamed: {} and {} here would both take {} of the checkpoint",
         in_quotes(model_->at(at->second).name), in_quotes(model_->at(id).name),
         in_quotes(names_.of(id)));
  }
}

void Selection::require_useful(const Bits& found, const std::vector<std::string>& there) const {
  Bits useful(static_cast<int64_t>(wish_.renamed.size()));
  for (int64_t id = 0; id < model_->size(); ++id) {
    const int64_t by = renamed_by_[static_cast<size_t>(id)];
    if (by >= 0 && found[id]) useful.set(by);
  }
  for (size_t i = 0; i < wish_.renamed.size(); ++i) {
    if (useful[static_cast<int64_t>(i)]) continue;
    const Rename& r = wish_.renamed[i];
    fail(OTR_E_NOT_FOUND, "load_options.renamed[{}]: the checkpoint has no parameter {}{}", i,
         in_quotes(r.there), did_you_mean(r.there, there));
  }
}

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
#include "core/layout/model.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/tensor/tensor.h"

namespace outrigger::layout {
namespace {

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string best = nearest(name, known);
  return best.empty() ? "" : format_text(": did you mean \"{}\"?", best);
}

}  // namespace

int64_t Model::add(Parameter parameter, std::string_view group, int64_t alias_of) {
  const int64_t id = size();
  if (ids_.contains(parameter.name)) {
    fail(OTR_E_DUPLICATE, "parameter \"{}\" is declared already, as id {}: names are unique",
         parameter.name, ids_.at(parameter.name));
  }
  if (alias_of >= 0) {
    if (alias_of >= id) {
      fail(OTR_E_NOT_FOUND,
           "parameter \"{}\": alias_of = {} is not the id of an earlier parameter (0 to {})",
           parameter.name, alias_of, id - 1);
    }
    Parameter& root = parameters_[static_cast<size_t>(at(alias_of).root)];
    if (parameter.shape != root.shape) {
      fail(OTR_E_SHAPE,
           "parameter \"{}\" has shape {} but shares \"{}\" of shape {}: they must be equal",
           parameter.name, tensor::text_of(parameter.shape), root.name,
           tensor::text_of(root.shape));
    }
    int32_t together = 0;
    if (__builtin_add_overflow(root.contributions, parameter.declared, &together)) {
      fail(OTR_E_ARGUMENT,
           "parameter \"{}\": contributions = {} and those of \"{}\" are together more than 2^31-1",
           parameter.name, parameter.declared, root.name);
    }
    root.contributions = together;
    root.matrix = root.matrix && parameter.matrix;
    parameter.root = at(alias_of).root;
    parameter.group = root.group;
    parameter.trainable = root.trainable;
  } else {
    if (parameter.count > kMostElements - elements_) {
      fail(OTR_E_OUT_OF_MEMORY,
           "parameter \"{}\" of {} elements makes the model larger than 2^56 elements",
           parameter.name, parameter.count);
    }
    elements_ += parameter.count;
    parameter.root = id;
    const auto found = std::find(groups_.begin(), groups_.end(), group);
    parameter.group = static_cast<int32_t>(found - groups_.begin());
    if (found == groups_.end()) groups_.emplace_back(group);
  }
  ids_.emplace(parameter.name, id);
  parameters_.push_back(std::move(parameter));
  return id;
}

void Model::unknown(int64_t id) const {
  fail(OTR_E_NOT_FOUND, "parameter id {} is unknown: this engine has ids 0 to {}", id, size() - 1);
}

int64_t Model::id_of(std::string_view name) const {
  const auto found = ids_.find(std::string(name));
  if (found != ids_.end()) return found->second;
  std::vector<std::string> names;
  names.reserve(parameters_.size());
  for (const Parameter& p : parameters_) names.push_back(p.name);
  fail(OTR_E_NOT_FOUND, "no parameter is named \"{}\"{}", name, did_you_mean(name, names));
}

int32_t Model::group_of(std::string_view name) const {
  const auto found = std::find(groups_.begin(), groups_.end(), name);
  if (found != groups_.end()) return static_cast<int32_t>(found - groups_.begin());
  constexpr size_t kListed = 8;
  std::string known;
  for (size_t i = 0; i < std::min(kListed, groups_.size()); ++i) {
    known += format_text("{}\"{}\"", i == 0 ? "" : ", ", groups_[i]);
  }
  if (groups_.size() > kListed) known += format_text(" and {} more", groups_.size() - kListed);
  fail(OTR_E_NOT_FOUND, "no parameter group is named \"{}\"; known groups: {}", name,
       known.empty() ? "none" : known);
}

std::vector<std::string> Model::lines() const {
  std::vector<std::string> lines;
  for (int64_t id = 0; id < size(); ++id) {
    const Parameter& p = at(id);
    lines.push_back(format_text(
        "parameter {} \"{}\" {}, group \"{}\", trainable {}, shares {}, contributions {}", id,
        p.name, tensor::text_of(p.shape), groups_.at(static_cast<size_t>(p.group)), p.trainable,
        p.root, p.declared));
  }
  return lines;
}

}  // namespace outrigger::layout

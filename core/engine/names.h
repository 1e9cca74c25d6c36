// SPDX-License-Identifier: Apache-2.0
// What a model's parameters are called elsewhere: in a checkpoint, or in a progress.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/layout/model.h"

namespace outrigger::engine {

// The model outlives it.
class Names {
 public:
  explicit Names(const layout::Model& model) : model_(&model) {}  // as here
  // there: by id; several may have one name there.
  Names(const layout::Model& model, std::vector<std::string> there)
      : model_(&model), there_(std::move(there)) {
    for (int64_t id = 0; id < model.size(); ++id) add(of(id), id);
  }

  [[nodiscard]] const std::string& of(int64_t id) const {
    return there_.empty() ? model_->at(id).name : there_[static_cast<size_t>(id)];
  }
  // Another name there of the same values.
  void add(const std::string& there, int64_t id) {
    std::vector<int64_t>& roots = roots_[there];
    const int64_t root = model_->at(id).root;
    if (std::ranges::find(roots, root) == roots.end()) roots.push_back(root);
  }
  // As here: its id. Else the roots here that have that name there. Throws OTR_E_NOT_FOUND.
  [[nodiscard]] std::vector<int64_t> ids_of(const std::string& there) const {
    if (there_.empty()) return {model_->id_of(there)};
    const auto found = roots_.find(there);
    if (found != roots_.end()) return found->second;
    fail(OTR_E_NOT_FOUND, "no parameter is renamed from \"{}\"", printable(there));
  }

 private:
  const layout::Model* model_;
  std::vector<std::string> there_;
  std::unordered_map<std::string, std::vector<int64_t>> roots_;
};

}  // namespace outrigger::engine

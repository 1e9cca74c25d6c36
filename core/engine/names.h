// SPDX-License-Identifier: Apache-2.0
// What a model's parameters are called elsewhere: in a checkpoint, or in a progress.
#pragma once

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
  // there: by id.
  Names(const layout::Model& model, std::vector<std::string> there)
      : model_(&model), there_(std::move(there)) {
    for (const bool roots : {true, false}) {  // two that are tied may have one name there
      for (int64_t id = 0; id < model.size(); ++id) {
        if ((model.at(id).root == id) == roots) ids_.emplace(of(id), id);
      }
    }
  }

  [[nodiscard]] const std::string& of(int64_t id) const {
    return there_.empty() ? model_->at(id).name : there_[static_cast<size_t>(id)];
  }
  // Throws OTR_E_NOT_FOUND.
  [[nodiscard]] int64_t id_of(const std::string& there) const {
    if (there_.empty()) return model_->id_of(there);
    const auto found = ids_.find(there);
    if (found != ids_.end()) return found->second;
    fail(OTR_E_NOT_FOUND, "no parameter is renamed from \"{}\"", printable(there));
  }

 private:
  const layout::Model* model_;
  std::vector<std::string> there_;
  std::unordered_map<std::string, int64_t> ids_;
};

}  // namespace outrigger::engine

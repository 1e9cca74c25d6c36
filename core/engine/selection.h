// SPDX-License-Identifier: Apache-2.0
// Which of the parameters here a load takes, and what the checkpoint calls them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bits.h"
#include "core/engine/names.h"
#include "core/layout/model.h"

namespace outrigger::engine {

// Names of one parameter, or, both with a `*` at the end, beginnings of names.
struct Rename {
  std::string here, there;
};

// Patterns (core/base/glob.h) of names here.
struct Wish {
  std::vector<std::string> include, exclude;  // include empty: all
  std::vector<Rename> renamed;
  std::vector<std::string> resized;  // whose first dimension may be another one there

  [[nodiscard]] bool chooses() const { return !include.empty() || !exclude.empty(); }
  // Of all that it says.
  [[nodiscard]] uint64_t hash() const;
};

class Selection {
 public:
  // Throws OTR_E_NOT_FOUND with the nearest name where something means no parameter,
  // OTR_E_ARGUMENT where it contradicts itself.
  Selection(const layout::Model& model, Wish wish);

  // All parameters that are tied, or none of them.
  [[nodiscard]] bool takes(int64_t id) const { return takes_[model_->at(id).root]; }
  [[nodiscard]] bool resizes(int64_t id) const { return resizes_[model_->at(id).root]; }
  [[nodiscard]] bool chooses() const { return wish_.chooses(); }
  [[nodiscard]] const Names& names() const { return names_; }
  // found: by id, whether it is taken and the checkpoint has its name. Throws OTR_E_NOT_FOUND for a
  // renaming that brought nothing.
  void require_useful(const Bits& found, const std::vector<std::string>& there) const;

 private:
  // By root, what the patterns mean; taken: they have to mean something that the load takes.
  [[nodiscard]] Bits meant(const std::vector<std::string>& patterns, const char* field,
                           bool taken) const;
  void choose();
  void rename();
  void require_distinct() const;

  const layout::Model* model_;
  Wish wish_;
  Bits takes_, resizes_;             // by root
  std::vector<int64_t> renamed_by_;  // by id: the entry of wish_.renamed, or -1
  Names names_;
};

}  // namespace outrigger::engine

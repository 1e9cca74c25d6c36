// SPDX-License-Identifier: Apache-2.0
// The parameters of a model as they were declared.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace outrigger::layout {

// Of a model: room for every product of elements and bytes of their states.
inline constexpr int64_t kMostElements = int64_t{1} << 56;

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count = 0;  // elements
  int64_t root = 0;   // own id, or the id whose storage this name shares
  int32_t group = 0;  // index into Model::groups
  bool trainable = true;
  bool frozen = false;        // trainable, but not in this window; a root's holds for its aliases
  bool matrix = false;        // Muon updates it as a whole; a root's: not if an alias is none
  int32_t declared = 1;       // contributions of this name in one pass
  int32_t contributions = 1;  // expected in one pass: a root's includes its aliases'
};

// A matrix's rows; its other dimensions are one.
[[nodiscard]] inline int64_t rows_of(const Parameter& p) { return p.shape.front(); }
[[nodiscard]] inline int64_t columns_of(const Parameter& p) { return p.count / rows_of(p); }

class Model {
 public:
  // Throws OTR_E_DUPLICATE, _NOT_FOUND, _SHAPE, _ARGUMENT, _OUT_OF_MEMORY. Sets id, root and group.
  int64_t add(Parameter parameter, std::string_view group, int64_t alias_of);

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(parameters_.size()); }
  [[nodiscard]] const Parameter& at(int64_t id) const {  // throws OTR_E_NOT_FOUND
    if (id < 0 || id >= size()) unknown(id);
    return parameters_[static_cast<size_t>(id)];
  }
  [[nodiscard]] int64_t id_of(std::string_view name) const;  // throws, with the nearest name
  [[nodiscard]] const Parameter& root(int64_t id) const { return at(at(id).root); }

  void set_frozen(int64_t root, bool frozen) {
    parameters_.at(static_cast<size_t>(root)).frozen = frozen;
  }

  [[nodiscard]] const std::vector<std::string>& groups() const { return groups_; }
  [[nodiscard]] int32_t group_of(std::string_view name) const;  // throws OTR_E_NOT_FOUND

  // One line for each declaration, the same on all ranks if the declarations are.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  [[noreturn]] void unknown(int64_t id) const;

  int64_t elements_ = 0;              // of all roots
  std::deque<Parameter> parameters_;  // names and shapes stay where they are
  std::vector<std::string> groups_{"default"};
  std::unordered_map<std::string, int64_t> ids_;
};

}  // namespace outrigger::layout

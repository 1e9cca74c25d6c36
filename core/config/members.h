// SPDX-License-Identifier: Apache-2.0
// Reading a parsed document that a program wrote: each value has to be of a kind and in a range,
// each member is known and there. Errors name the document, the line and the value's path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/document.h"

namespace outrigger::config {

// What is read: its name in errors, and their status.
struct Subject {
  std::string what;
  int32_t status = OTR_E_CONFIG;
};

// A value with its path. Its subject and node outlive it.
class ValueAt {
 public:
  ValueAt(const Subject& subject, const Node& node, std::string path = "")
      : subject_(&subject), node_(&node), path_(std::move(path)) {}

  [[nodiscard]] const Node& node() const { return *node_; }
  [[nodiscard]] const Subject& subject() const { return *subject_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  template <typename T>
  [[nodiscard]] T integer(T low, T high) const;
  [[nodiscard]] double number() const;
  [[nodiscard]] bool flag() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::vector<ValueAt> list() const;
  // Of an object whose names are not known before.
  [[nodiscard]] std::vector<std::pair<std::string, ValueAt>> entries() const;
  [[noreturn]] void refuse(std::string_view legal) const;

 private:
  friend class Members;
  const ValueAt& expect(Kind kind, std::string_view legal) const;
  [[nodiscard]] std::string path_of(std::string_view name) const {
    return path_.empty() ? std::string(name) : format_text("{}.{}", path_, name);
  }
  const Subject* subject_;
  const Node* node_;
  std::string path_;
};

// The members of an object, each of which is taken once.
class Members {
 public:
  explicit Members(ValueAt object) : object_(std::move(object)) {
    static_cast<void>(object_.expect(Kind::object, "an object"));
  }
  ValueAt take(std::string_view name);
  // After the last.
  void require_all_taken() const;

 private:
  ValueAt object_;
  std::vector<std::string> known_;
};

template <typename T>
T ValueAt::integer(T low, T high) const {
  bool in_range = node_->kind == Kind::integer;
  if (in_range && node_->scalar.is_number_unsigned()) {
    const auto value = node_->scalar.get<uint64_t>();
    in_range = std::cmp_greater_equal(value, low) && std::cmp_less_equal(value, high);
  } else if (in_range) {
    const auto value = node_->scalar.get<int64_t>();
    in_range = std::cmp_greater_equal(value, low) && std::cmp_less_equal(value, high);
  }
  if (!in_range) refuse(format_text("an integer from {} to {}", low, high));
  return node_->scalar.get<T>();
}

}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
// A configuration after the check against the key table: every key has a value and an origin.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/document.h"
#include "core/config/keys.h"

namespace outrigger::config {

enum class Origin : uint8_t { user, fallback, derived };

struct Value {
  const Key* key = nullptr;
  Json json;  // in canonical form: integers as integers, choices in the table's spelling
  Origin origin = Origin::fallback;
  Position at;        // in the text
  std::string path;   // as the text spells it
  std::string shown;  // the user's value, as written
};

class Values {
 public:
  Values();  // all defaults

  [[nodiscard]] bool flag(std::string_view path) const { return json(path).get<bool>(); }
  [[nodiscard]] int64_t count(std::string_view path) const { return json(path).get<int64_t>(); }
  [[nodiscard]] double number(std::string_view path) const { return json(path).get<double>(); }
  [[nodiscard]] std::string text(std::string_view path) const {
    return json(path).get<std::string>();
  }
  [[nodiscard]] const Json& json(std::string_view path) const { return at(path).json; }
  [[nodiscard]] bool is_null(std::string_view path) const { return json(path).is_null(); }

  [[nodiscard]] bool from_user(std::string_view path) const {
    return at(path).origin == Origin::user;
  }
  // From the text, and not what the default says.
  [[nodiscard]] bool given(std::string_view path) const;
  // How messages name a value: "line 3, column 5: path = value" in front, "path = value (line 3,
  // column 5)" further on; without a line if it is not from the text.
  [[nodiscard]] std::string lead(std::string_view path) const;
  [[nodiscard]] std::string name(std::string_view path) const;

  void set(std::string_view path, Json json, Origin origin);
  [[nodiscard]] Value& at(std::string_view path);
  [[nodiscard]] const Value& at(std::string_view path) const;

  [[nodiscard]] bool any_from_user() const { return any_from_user_; }

  // In the order of the text: what is legal but not built, and what the host framework has to do.
  std::vector<std::string> not_built, left_to_host;
  std::vector<std::string> dropped_auto;  // keys whose "auto" means the default
  std::vector<std::string> warnings;

 private:
  friend class Checker;
  std::map<std::string_view, Value> values_;
  bool any_from_user_ = false;
};

// The form of the text: a whole configuration, or otr_optimizer_create's
// {"type", "params", "scheduler", "gradient_clipping", "states", "seed"}.
enum class Form : uint8_t { engine, optimizer };

// Checks names, types and ranges. Throws OTR_E_CONFIG for the first fault in the text's order.
[[nodiscard]] Values check(const Node& root, Form form);

// Throws OTR_E_UNSUPPORTED if values.not_built has entries.
void refuse_not_built(const Values& values);

// Every key as {"value": …, "origin": "user" | "default" | "derived"}, nested by its path, in the
// order of the key table. A key that the user set and the engine leaves alone has a "note" that
// says why.
[[nodiscard]] std::string effective_json(const Values& values);

}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
// Short constructors for the rows of the key table.
#pragma once

#include "core/config/keys.h"

namespace outrigger::config::rows {

using Words = std::string_view;

inline constexpr double kAnyCount = 9223372036854775807.0;  // as far as int64_t goes
inline constexpr double kInt32 = 2147483647.0;
inline constexpr double kFloat = 1e30;  // stays finite in float32, also multiplied by a few others

constexpr Key section(Words path, Words meaning, Words note = "") {
  return {path, Type::section, "null", Status::supported, meaning, note};
}
constexpr Key flag(Words path, Words fallback, Status status, Words meaning, Words note = "") {
  return {path, Type::boolean, fallback, status, meaning, note};
}
constexpr Key count(Words path, Words fallback, double low, double high, Status status,
                    Words meaning, Words note = "") {
  return {path, Type::integer, fallback, status, meaning, note, "", "", low, high};
}
constexpr Key real(Words path, Words fallback, double low, double high, Status status,
                   Words meaning, Words note = "") {
  return {path, Type::number, fallback, status, meaning, note, "", "", low, high};
}
constexpr Key choice(Words path, Words fallback, Words choices, Words later, Status status,
                     Words meaning, Words note = "") {
  return {path, Type::choice, fallback, status, meaning, note, choices, later};
}
constexpr Key dtype(Words path, Words fallback, Status status, Words meaning, Words note = "") {
  return {path, Type::dtype, fallback, status, meaning, note};
}
constexpr Key word(Words path, Words fallback, Status status, Words meaning, Words note = "") {
  return {path, Type::text, fallback, status, meaning, note};
}
constexpr Key texts(Words path, Words fallback, Status status, Words meaning, Words note = "") {
  return {path, Type::texts, fallback, status, meaning, note};
}
constexpr Key any(Words path, Words fallback, Status status, Words meaning, Words note = "") {
  return {path, Type::any, fallback, status, meaning, note};
}
constexpr Key alias(Words path, Words of, Type type, Words meaning) {
  Key key{path, type, "null", Status::supported, meaning, ""};
  key.alias_of = of;
  return key;
}

}  // namespace outrigger::config::rows

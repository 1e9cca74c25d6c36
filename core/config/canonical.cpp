// SPDX-License-Identifier: Apache-2.0
#include "core/config/canonical.h"

#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"

namespace outrigger::config {
namespace {

bool is_number(const Node& node) { return node.kind == Kind::integer || node.kind == Kind::number; }

bool in_range(double value, const Key& key) {
  return value >= key.low && (key.high_open ? value < key.high : value <= key.high);
}

// Only a key whose range says so takes the upper half of uint64_t.
bool fits(const Json& integer, const Key& key) {
  constexpr double kHalf = 9223372036854775808.0;
  const bool upper = integer.is_number_unsigned() && integer.get<uint64_t>() > INT64_MAX;
  return in_range(integer.get<double>(), key) && (!upper || key.high > kHalf);
}

// 5e8 is an integer; 0.5 is not, and beyond 2^53 a double no longer says which integer is meant.
Json integral(const Node& node, const Key& key, const std::string& path) {
  const double value = node.scalar.get<double>();
  constexpr double kExact = 9007199254740992.0;
  if (!in_range(value, key) || std::trunc(value) != value) not_legal(node, key, path);
  if (std::abs(value) > kExact) {
    fail(OTR_E_CONFIG,
         "{}: {} = {} is not legal; legal: {}; beyond 2^53 only an integer without point and "
         "exponent is exact",
         line_of(node.at), path, node.shown, legal_values(key));
  }
  return static_cast<int64_t>(value);
}

Json integer(const Node& node, const Key& key, const std::string& path) {
  if (node.kind == Kind::number) return integral(node, key, path);
  if (node.kind != Kind::integer || !fits(node.scalar, key)) not_legal(node, key, path);
  return node.scalar;
}

Json number(const Node& node, const Key& key, const std::string& path) {
  if (!is_number(node) || !in_range(node.scalar.get<double>(), key)) not_legal(node, key, path);
  return node.scalar.get<double>();
}

Json list_of(const Node& node, const Key& key, const std::string& path) {
  if (node.kind != Kind::list) not_legal(node, key, path);
  if (key.type == Type::number_pair && node.items.size() != 2) not_legal(node, key, path);
  Json list = Json::array();
  for (size_t i = 0; i < node.items.size(); ++i) {
    const Node& item = node.items[i];
    const std::string inner = format_text("{}[{}]", path, i);
    if (key.type == Type::number_pair) {
      list.push_back(number(item, key, inner));
    } else {
      if (item.kind != Kind::text) not_legal(item, key, inner);
      list.push_back(item.scalar);
    }
  }
  return list;
}

// The table's spelling of a choice or a dtype.
Json word(const Node& node, const Key& key, const std::string& path) {
  if (node.kind != Kind::text) not_legal(node, key, path);
  const std::string given = node.scalar.get<std::string>();
  std::string_view match;
  if (key.type == Type::dtype) {
    match = canonical_dtype(given);
  } else {
    match = match_choice(key.choices, given);
    if (match.empty()) match = match_choice(key.later, given);
  }
  if (match.empty()) not_legal(node, key, path);
  return std::string(match);
}

std::string hint(const Node& node, const Key& key) {
  if (node.kind == Kind::null) {
    return format_text("; leave the key out for the default {}", key.fallback);
  }
  const bool word = key.type == Type::choice || key.type == Type::dtype || key.type == Type::text ||
                    key.type == Type::texts;
  if (node.kind == Kind::boolean && key.type != Type::section) {
    return "; true and false stand for themselves only";
  }
  if (node.kind == Kind::list && key.path.starts_with("scheduler.")) {
    return "; one value holds for all groups; \"Cosine\" and \"WSD\" scale each group's own rate";
  }
  if (node.kind != Kind::text) return {};
  if (!word) return key.type == Type::section ? "" : "; write it without quotes";
  std::vector<std::string> words = split_choices(key.choices);
  for (std::string& later : split_choices(key.later)) words.push_back(std::move(later));
  const std::string guess = nearest(node.scalar.get<std::string>(), words);
  return guess.empty() ? "" : format_text("; the nearest is \"{}\"", guess);
}

}  // namespace

void not_legal(const Node& node, const Key& key, const std::string& path) {
  fail(OTR_E_CONFIG, "{}: {} = {} is not legal; legal: {}{}", line_of(node.at), path, node.shown,
       legal_values(key), hint(node, key));
}

Json canonical(const Node& node, const Key& key, const std::string& path) {
  if (node.kind == Kind::null && key.fallback == "null") return nullptr;
  switch (key.type) {
    case Type::boolean:
      if (node.kind != Kind::boolean) break;
      return node.scalar;
    case Type::integer:
      return integer(node, key, path);
    case Type::number:
      return number(node, key, path);
    case Type::number_pair:
    case Type::texts:
      return list_of(node, key, path);
    case Type::text:
      if (node.kind != Kind::text) break;
      return node.scalar;
    case Type::choice:
    case Type::dtype:
      return word(node, key, path);
    case Type::any:
      return to_json(node);
    case Type::section:
      break;
  }
  not_legal(node, key, path);
}

}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
// JSON text as a tree in which every key and value knows its line and column.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.h"

namespace outrigger::config {

using Json = nlohmann::ordered_json;

struct Position {
  int32_t line = 1, column = 1;  // from 1; columns count characters, not bytes
};

enum class Kind : uint8_t { null, boolean, integer, number, text, list, object };

[[nodiscard]] std::string line_of(Position at);  // "line 3, column 5"

struct Member;

struct Node {
  Kind kind = Kind::null;
  Position at;
  Json scalar;        // of the first five kinds
  std::string shown;  // the source text, shortened and printable, for messages
  std::vector<Node> items;
  std::vector<Member> members;
};

struct Member {
  std::string name;
  Position at;
  Node value;
};

// Caps on untrusted text.
inline constexpr size_t kMaxBytes = size_t{1} << 20;
inline constexpr size_t kMaxDepth = 32;
inline constexpr size_t kMaxValues = 10000;
struct Caps {
  std::string_view what = "the configuration";
  size_t bytes = kMaxBytes, values = kMaxValues;  // of one object, too
};

// Strict JSON: no comments, no duplicate keys, no trailing commas, valid UTF-8 (a byte-order mark
// is skipped). Empty text is an empty object. Throws OTR_E_CONFIG with line and column.
[[nodiscard]] Node parse_document(std::string_view text, const Caps& caps = {});

[[nodiscard]] Json to_json(const Node& node);

using outrigger::printable;

}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
// The key table as a JSON Schema (draft 2020-12). It states names, types and ranges; rules between
// keys are the parser's alone.
#include <cctype>

#include "core/config/document.h"
#include "core/config/keys.h"
#include "tests/config/docs.h"

namespace outrigger::config {
namespace {

Json number_value(double value, bool integer) {
  if (!integer) return value;
  if (value >= 9223372036854775808.0) {
    return value >= 18446744073709551615.0 ? Json(UINT64_MAX) : Json(INT64_MAX);
  }
  return static_cast<int64_t>(value);
}

// A pattern that matches the words in any case.
std::string any_case(const std::vector<std::string>& words) {
  std::string pattern = "^(";
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) pattern += '|';
    for (const char letter : words[i]) {
      const auto byte = static_cast<unsigned char>(letter);
      if (std::isalpha(byte) != 0) {
        pattern += {'[', static_cast<char>(std::toupper(byte)),
                    static_cast<char>(std::tolower(byte)), ']'};
      } else if (letter == '.') {
        pattern += "\\.";
      } else {
        pattern += letter;
      }
    }
  }
  return pattern + ")$";
}

Json words_schema(const std::vector<std::string>& words) {
  Json names = Json::array();
  for (const std::string& word : words) names.push_back(word);
  return {{"anyOf",
           Json::array({{{"enum", names}}, {{"type", "string"}, {"pattern", any_case(words)}}})}};
}

Json range_schema(const Key& key, bool integer) {
  Json schema = {{"type", integer ? "integer" : "number"}};
  schema["minimum"] = number_value(key.low, integer);
  schema[key.high_open ? "exclusiveMaximum" : "maximum"] = number_value(key.high, integer);
  return schema;
}

// An object of free form that asks for nothing.
Json asks_nothing() {
  const Json off = {{"type", "object"},
                    {"properties", {{"enabled", {{"const", false}}}}},
                    {"required", Json::array({"enabled"})}};
  return {{"anyOf",
           Json::array(
               {{{"enum", Json::array({nullptr, false})}},
                {{"type", Json::array({"object", "array"})}, {"maxProperties", 0}, {"maxItems", 0}},
                off})}};
}

Json type_schema(const Key& key) {
  switch (key.type) {
    case Type::boolean:
      if (key.status == Status::refused) return {{"const", Json::parse(key.fallback)}};
      return {{"type", "boolean"}};
    case Type::integer:
      return range_schema(key, true);
    case Type::number:
      return range_schema(key, false);
    case Type::number_pair:
      return {
          {"type", "array"}, {"items", range_schema(key, false)}, {"minItems", 2}, {"maxItems", 2}};
    case Type::text:
      return {{"type", "string"}};
    case Type::texts:
      return {{"type", "array"}, {"items", {{"type", "string"}}}};
    case Type::choice: {
      std::vector<std::string> words = split_choices(key.choices);
      for (std::string& later : split_choices(key.later)) words.push_back(std::move(later));
      return words_schema(words);
    }
    case Type::dtype: {
      std::vector<std::string> words;
      for (const std::string_view word :
           {"fp32", "float32", "float", "bf16", "bfloat16", "fp16", "float16", "half"}) {
        words.emplace_back(word);
        words.push_back("torch." + words.back());
      }
      return words_schema(words);
    }
    case Type::any:
      return key.status == Status::refused ? asks_nothing() : Json::object();
    case Type::section:
      break;
  }
  Json schema = {{"type", Json::array({"object", "null"})}};
  if (key.path == "zero_optimization") schema["type"].push_back("boolean");
  schema["additionalProperties"] = false;
  schema["properties"] = Json::object();
  return schema;
}

std::string description(const Key& key) {
  std::string text(key.meaning);
  if (!key.note.empty()) text.append(" (").append(key.note).append(")");
  switch (key.status) {
    case Status::hint:
      text += "; without effect here";
      break;
    case Status::host:
      text += "; left to the host framework";
      break;
    case Status::not_built:
      text += "; not built yet";
      break;
    case Status::refused:
      text += "; refused";
      break;
    case Status::supported:
    case Status::judged:
      break;
  }
  return text;
}

Json key_schema(const Key& key) {
  const Key& target = key.alias_of.empty() ? key : *find_key(key.alias_of);
  Json schema = type_schema(target);
  Json others = Json::array();
  if (target.type != Type::section && target.type != Type::any) {
    if (target.fallback == "null") others.push_back(nullptr);
    if (auto_means_default(target.path)) others.push_back("auto");
  }
  if (!others.empty()) {
    const Json inner = std::move(schema);
    schema = {{"anyOf", Json::array({inner, {{"enum", others}}})}};
  }
  schema["description"] = description(key);
  if (!key.alias_of.empty()) {
    schema["deprecated"] = true;
  } else if (key.type != Type::section) {
    schema["default"] = Json::parse(key.fallback);
  }
  return schema;
}

}  // namespace

std::string schema_text() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "Outrigger configuration"},
               {"description",
                "Generated from the key table in core/config. DeepSpeed's keys, and own keys under "
                "outrigger."},
               {"type", "object"},
               {"additionalProperties", false},
               {"properties", Json::object()}};
  for (const Key& key : keys()) {
    Json* place = &root["properties"];
    std::string_view path = key.path;
    for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
      place = &(*place)[std::string(path.substr(0, dot))]["properties"];
      path.remove_prefix(dot + 1);
    }
    if (key.alias_of == "bf16") {
      (*place)[std::string(path)] = {{"$ref", "#/properties/bf16"}, {"deprecated", true}};
    } else {
      (*place)[std::string(path)] = key_schema(key);
    }
  }
  return root.dump(1) + "\n";
}

}  // namespace outrigger::config

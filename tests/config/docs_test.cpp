// SPDX-License-Identifier: Apache-2.0
// The checked-in documents equal what the tables generate.
#include "tests/config/docs.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/config/keys.h"
#include "tests/config/support.h"

namespace outrigger::config {
namespace {

constexpr std::string_view kRemedy = "; run otr_config_docs docs/ to write it anew";

std::string checked_in(const std::string& name) {
  std::ifstream file(std::string(OTR_DOCS_DIR) + "/" + name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << name;
  return text.str();
}

// Compares without printing two long texts.
void expect_same(const std::string& name, const std::string& stored, const std::string& fresh) {
  const auto [a, b] = std::ranges::mismatch(stored, fresh);
  if (a == stored.end() && b == fresh.end()) return;
  const auto line = 1 + std::count(stored.begin(), a, '\n');
  ADD_FAILURE() << name << " differs from the tables at line " << line << kRemedy;
}

TEST(Docs, SchemaIsFresh) {
  expect_same("configuration.schema.json", checked_in("configuration.schema.json"), schema_text());
}

TEST(Docs, KeyTablesAreFresh) {
  const std::string page = checked_in("configuration.md");
  expect_same("configuration.md", page, with_key_tables(page));
  EXPECT_THROW((void)with_key_tables("no markers"), std::runtime_error);
}

TEST(Docs, LegalityPageIsFresh) {
  expect_same("legality.md", checked_in("legality.md"), legality_page());
}

TEST(Docs, SchemaKnowsEveryKeyAndNoOther) {
  using Tree = nlohmann::ordered_json;
  const Tree schema = Tree::parse(schema_text());
  for (const Key& key : keys()) {
    std::string pointer = "/properties/" + std::string(key.path);
    for (size_t dot = pointer.find('.'); dot != std::string::npos; dot = pointer.find('.')) {
      pointer.replace(dot, 1, "/properties/");
    }
    ASSERT_TRUE(schema.contains(Tree::json_pointer(pointer))) << key.path;
    if (key.type == Type::section && key.alias_of.empty()) {
      const Tree& section = schema.at(Tree::json_pointer(pointer));
      EXPECT_EQ(section.at("additionalProperties"), false) << key.path;
      EXPECT_EQ(section.at("properties").size(), names_in(key.path).size()) << key.path;
    }
  }
  EXPECT_EQ(schema.at("properties").size(), names_in("").size());
  EXPECT_EQ(schema.at("additionalProperties"), false);
}

}  // namespace
}  // namespace outrigger::config

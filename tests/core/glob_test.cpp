// SPDX-License-Identifier: Apache-2.0
#include "core/base/glob.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>

namespace outrigger {
namespace {

TEST(Glob, StarsQuestionMarksAndEverythingElse) {
  EXPECT_TRUE(glob_matches("encoder.*", "encoder.0.weight"));
  EXPECT_TRUE(glob_matches("encoder.*", "encoder."));
  EXPECT_FALSE(glob_matches("encoder.*", "encoder"));
  EXPECT_FALSE(glob_matches("encoder.*", "my.encoder.0"));
  EXPECT_TRUE(glob_matches("*.bias", "a.b.bias"));
  EXPECT_FALSE(glob_matches("*.bias", "a.b.bias2"));
  EXPECT_TRUE(glob_matches("*.bias*", "a.b.bias2"));
  EXPECT_TRUE(glob_matches("h.?.w", "h.3.w"));
  EXPECT_FALSE(glob_matches("h.?.w", "h.12.w"));
  EXPECT_FALSE(glob_matches("h.?.w", "h..w"));
  EXPECT_FALSE(glob_matches("W", "w"));
  EXPECT_TRUE(glob_matches("[a].{b}\\", "[a].{b}\\"));
  EXPECT_FALSE(glob_matches("[a]", "a"));
  EXPECT_TRUE(glob_matches("", ""));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_FALSE(glob_matches("?", ""));
}

// A character of UTF-8 is one, and is not cut into bytes by a star before it.
TEST(Glob, CharactersOfManyBytesAreOne) {
  EXPECT_TRUE(glob_matches("?.w", "ß.w"));
  EXPECT_TRUE(glob_matches("?", "\xe2\x82\xac"));
  EXPECT_FALSE(glob_matches("??", "\xe2\x82\xac"));
  EXPECT_FALSE(glob_matches("*??", "\xe2\x82\xac"));
  EXPECT_FALSE(glob_matches("*??x*", "\xe2\x82\xacxy"));
  EXPECT_TRUE(glob_matches("*?", "a\xe2\x82\xac"));
}

// Straight from what a star and a question mark are.
bool by_definition(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return by_definition(pattern.substr(1), name) ||
           (!name.empty() && by_definition(pattern, name.substr(1)));
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         by_definition(pattern.substr(1), name.substr(1));
}

TEST(Glob, IsWhatItsDefinitionSays) {
  std::mt19937 random(7);
  const auto text = [&](std::string_view letters) {
    std::string out;
    for (auto n = random() % 9; n > 0; --n) out += letters[random() % letters.size()];
    return out;
  };
  size_t matches = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::string pattern = text("ab.*?"), name = text("ab.");
    const bool expected = by_definition(pattern, name);
    matches += expected ? 1 : 0;
    ASSERT_EQ(glob_matches(pattern, name), expected) << pattern << " " << name;
  }
  EXPECT_GT(matches, 5000U);
}

// Where every star could try every place the time would be without end.
TEST(Glob, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(glob_matches(pattern + "b", std::string(2000, 'a')));
}

}  // namespace
}  // namespace outrigger

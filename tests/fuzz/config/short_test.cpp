// SPDX-License-Identifier: Apache-2.0
// The configuration fuzzer's short form: the examples, and changes from a fixed seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/text.h"
#include "tests/fuzz/config/mutate.h"
#include "tests/fuzz/config/properties.h"
#include "tests/sanitizers.h"

namespace otr_fuzz {
namespace {

std::vector<std::string> files_under(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().extension() != ".txt") paths.push_back(entry);
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    texts.push_back(text.str());
  }
  return texts;
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts = files_under(OTR_EXAMPLES_DIR);
  texts.emplace_back("{}");
  texts.emplace_back(R"({"type": "Adam", "params": {"lr": 5e-1}, "states": {"master": {}}})");
  texts.emplace_back("[[[[{\"a\": [null, true, -0.0, 1e308, \"\\u00e9\\ud83d\\ude00\"]}]]]]");
  return texts;
}

bool expect_proper(const std::string& text, std::string_view shown) {
  const Verdict verdict = check_configuration(text);
  EXPECT_EQ(verdict.broken, "") << shown;
  return verdict.accepted;
}

TEST(ConfigFuzz, SeedsAndTheirMutationsGetAnAnswer) {
  Random random(20240531);
  const std::vector<std::string> texts = seeds();
  for (const std::string& text : texts) expect_proper(text, text);
  constexpr int kRounds = outrigger::test::rounds(3000);
  int64_t accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = texts[below(random, texts.size())];
    for (size_t i = below(random, 6); i > 0; --i) text = mutate(text, random);
    accepted += expect_proper(text, text) ? 1 : 0;
  }
  EXPECT_GT(accepted, kRounds / 30);  // the loop also reaches what lies behind the checks
}

TEST(ConfigFuzz, AMegabyteOfGarbageIsAnsweredAtOnce) {
  Random random(7);
  for (int round = 0; round < 4; ++round) {
    std::string text(size_t{1} << 20, '\0');
    for (char& c : text) c = static_cast<char>(1 + below(random, 255));
    expect_proper(text, "garbage");
    expect_proper("{\"" + text.substr(0, 1000000), "garbage in a key");
  }
  std::string pieces = "{";
  while (pieces.size() < (size_t{1} << 20) - 128) pieces += words()[below(random, words().size())];
  expect_proper(pieces, "pieces");
  // Many keys of one object, the worst case of the search for duplicates.
  std::string keys = "{\"0\": 0";
  for (int i = 1; i < 9000; ++i) keys += outrigger::format_text(",\"{}\": 0", i);
  expect_proper(keys + "}", "keys");
}

}  // namespace
}  // namespace otr_fuzz

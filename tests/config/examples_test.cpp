// SPDX-License-Identifier: Apache-2.0
// Whole configurations as people write them, in tests/config/examples. accepted/ parses for two
// ranks. unsupported/, contradictory/ and malformed/ are refused, each with the message in the .txt
// beside it; malformed/ is what the JSON Schema refuses too.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/config/support.h"

namespace outrigger::config {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return text.str();
}

std::vector<std::filesystem::path> examples(std::string_view folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(OTR_EXAMPLES_DIR) / folder)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  EXPECT_GE(paths.size(), 4U) << folder;
  return paths;
}

void expect_refused(std::string_view folder, int32_t status) {
  for (const auto& path : examples(folder)) {
    const Fault fault = engine_fault(read(path), 2);
    EXPECT_EQ(fault.status, status) << path << ": " << fault.text;
    auto message = path;
    EXPECT_EQ(fault.text + "\n", read(message.replace_extension(".txt"))) << path;
  }
}

TEST(Examples, AcceptedAreAccepted) {
  for (const auto& path : examples("accepted")) {
    EXPECT_EQ(engine_fault(read(path), 2).text, "") << path;
  }
}

TEST(Examples, UnsupportedAreRefusedByName) { expect_refused("unsupported", OTR_E_UNSUPPORTED); }
TEST(Examples, ContradictoryAreRefusedByName) { expect_refused("contradictory", OTR_E_CONFIG); }
TEST(Examples, MalformedAreRefusedByName) { expect_refused("malformed", OTR_E_CONFIG); }

}  // namespace
}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
// The lines of a command that takes long.
#include "c_api/tools/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <thread>

namespace outrigger::tools {
namespace {

TEST(Progress, TellsHowFarACallIs) {
  testing::internal::CaptureStderr();
  {
    const Progress progress("export", 4'000'000'000);
    for (int i = 0; i < 6; ++i) {
      std::ifstream file("/proc/self/exe", std::ios::binary);
      std::string read((std::istreambuf_iterator<char>(file)), {});
      ASSERT_GT(read.size(), 100000U);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2300));
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::regex_search(
      text, std::regex(R"(outrigger export: 0\.[0-9] of 4\.0 GB read, [2-9] s\n)")))
      << text;
}

TEST(Progress, SaysNothingOfWhatIsQuick) {
  testing::internal::CaptureStderr();
  {
    const Progress progress("import", 5);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
// Calls of outrigger estimate, and files for it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process.h"

namespace outrigger::testing {

using Json = nlohmann::ordered_json;

inline const std::string kTool = OTR_TOOL;

// A safetensors file with so many bytes of data.
inline std::string safetensors(const std::string& header, size_t data) {
  const uint64_t bytes = header.size();
  std::string length(sizeof bytes, '\0');
  std::memcpy(length.data(), &bytes, sizeof bytes);
  return length + header + std::string(data, '\0');
}

class Estimate : public ::testing::Test {
 protected:
  // A thousand million parameters in 64 tensors.
  [[nodiscard]] std::string shapes() const {
    std::string text = "{";
    for (int i = 0; i < 64; ++i) {
      text += (i == 0 ? "\"w" : ", \"w") + std::to_string(i) + "\": [16384, 1024]";
    }
    return folder_.write("shapes.json", text + "}");
  }
  static Result estimate(std::vector<std::string> words) {
    words.insert(words.begin(), {kTool, "estimate"});
    return run(words);
  }
  static Json json_of(std::vector<std::string> words) {
    words.emplace_back("--json");
    const Result result = estimate(words);
    EXPECT_LE(result.code, 1) << result.out << result.err;
    return Json::parse(result.out, nullptr, false);
  }
  // Code 2, the parts in one line of standard error, and the same as JSON.
  static void expect_fault(const std::vector<std::string>& words,
                           const std::vector<std::string>& parts) {
    const Result result = estimate(words);
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    std::vector<std::string> as_json = words;
    as_json.emplace_back("--json");
    const Result json = estimate(as_json);
    EXPECT_EQ(json.code, 2);
    const Json error = Json::parse(json.out, nullptr, false);
    ASSERT_TRUE(error.contains("error")) << json.out << json.err;
    EXPECT_EQ(error["error"]["status"].get<std::string>().rfind("OTR_E_", 0), 0U);
    for (const std::string& part : parts) {
      EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in " << result.err;
      EXPECT_NE(error["error"]["message"].get<std::string>().find(part), std::string::npos)
          << error;
    }
  }

  TemporaryFolder folder_;
};

}  // namespace outrigger::testing

// SPDX-License-Identifier: Apache-2.0
// The command `outrigger` under test.
#pragma once

#include <string>
#include <vector>

namespace outrigger::testing {

inline const std::string kTool = OTR_TOOL;

// outrigger run <options> -- sh -c <script>
inline std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  std::vector<std::string> command{kTool, "run"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", "sh", "-c", script});
  return command;
}

}  // namespace outrigger::testing

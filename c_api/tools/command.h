// SPDX-License-Identifier: Apache-2.0
// A command of `outrigger`: how it is called, and what it then does.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace outrigger::tools {

struct Call {
  bool json = false;              // --json was given
  std::vector<std::string> rest;  // what stands after --
};

struct Command {
  CLI::App* app;
  std::function<int(const Call&)> run;  // returns the exit code, or throws
  int fault_code = 2;                   // exit code of a fault where --json is not given
};

// One for each file <name>_command.cpp. `json` is set by --json.
[[nodiscard]] Command add_run(CLI::App& app, bool& json);
[[nodiscard]] Command add_config(CLI::App& app, bool& json);
[[nodiscard]] Command add_estimate(CLI::App& app, bool& json);
[[nodiscard]] Command add_doctor(CLI::App& app, bool& json);
[[nodiscard]] Command add_doctor_worker(CLI::App& app);
[[nodiscard]] Command add_version(CLI::App& app, bool& json);

}  // namespace outrigger::tools

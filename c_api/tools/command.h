// SPDX-License-Identifier: Apache-2.0
// A command of `outrigger`: how it is called, and what it then does.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "text.h"

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
[[nodiscard]] Command add_inspect(CLI::App& app, bool& json);
[[nodiscard]] Command add_export(CLI::App& app, bool& json);
[[nodiscard]] Command add_import(CLI::App& app, bool& json);
[[nodiscard]] Command add_top(CLI::App& app, bool& json);
[[nodiscard]] Command add_trace(CLI::App& app, bool& json);
[[nodiscard]] Command add_doctor(CLI::App& app, bool& json);
[[nodiscard]] Command add_doctor_worker(CLI::App& app);

// The check of an option that is a number. (CLI::Range lets NaN through.)
// what: the unit and whose it is, such as "seconds".
inline CLI::Validator number_in(double least, double most, const std::string& what) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return {};
    return format_text("{} is not legal; give {} as a number from {} to {}", text, what, least,
                       most);
  };
  return {check, format_text("in [{} - {}]", least, most)};
}

// Every value in effect for `world` ranks, with its origin, as JSON. Throws Fault.
[[nodiscard]] std::string effective_config(const std::string& text, int world);

// The configuration of `world` ranks for one that is alone: the batch of all ranks is checked here
// and left out there.
[[nodiscard]] std::string config_of_one_rank(const std::string& text, int world);

// The warnings that an engine of `world` ranks gives its host's log for a legal configuration.
[[nodiscard]] std::vector<std::string> config_warnings(const std::string& text, int world);

// To standard error. file: that of the configuration.
void say_warnings(const std::string& file, const std::vector<std::string>& warnings);

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>

#include "command.h"
#include "fault.h"
#include "files.h"
#include "text.h"

namespace outrigger::tools {

std::string effective_config(const std::string& text, int world) {
  size_t size = 0;
  check(otr_config_check(text.c_str(), world, nullptr, &size));
  std::string effective(size, '\0');
  check(otr_config_check(text.c_str(), world, effective.data(), &size));
  effective.resize(size - 1);
  return effective;
}

Command add_config(CLI::App& app, bool& json) {
  struct Request {
    std::string file;
    int world = 1;
  };
  const auto request = std::make_shared<Request>();
  CLI::App* config = app.add_subcommand(
      "config", "Check a configuration; print every value in effect with its origin, as JSON");
  config->add_option("file", request->file, "JSON file, or - for standard input")->required();
  config->add_option("--world", request->world, "Number of ranks")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  config->add_flag("--json", json, "Say what is wrong as JSON on standard output, too");
  const auto run = [request](const Call&) {
    const std::string text = request->file == "-" ? read_all(std::cin) : read_file(request->file);
    try {
      write_text("{}\n", effective_config(text, request->world));
    } catch (const Fault& fault) {
      throw Fault(fault.code(), format_text("{}: {}", request->file, fault.what()));
    }
    return 0;
  };
  return {config, run, 1};
}

}  // namespace outrigger::tools

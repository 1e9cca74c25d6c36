// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "fault.h"
#include "files.h"
#include "text.h"

namespace outrigger::tools {
namespace {

using Json = nlohmann::ordered_json;

void keep(int32_t, const char* text, void* user_data) {
  static_cast<std::vector<std::string>*>(user_data)->emplace_back(text);
}

// What an engine of one rank warns of, or the status of its failure.
int32_t collect_warnings(const std::string& text, std::vector<std::string>& warnings) {
  otr_context_options options;
  check(otr_context_options_init(&options, sizeof options));
  options.log_callback = keep;
  options.log_user_data = &warnings;
  otr_context* context = nullptr;
  otr_comm* comm = nullptr;
  otr_engine* engine = nullptr;
  int32_t status = otr_context_create(&options, &context);
  if (status == OTR_OK) status = otr_comm_create_self(context, &comm);
  if (status == OTR_OK) status = otr_engine_create(comm, text.c_str(), &engine);
  otr_engine_destroy(engine);
  otr_comm_destroy(comm);
  otr_context_destroy(context);
  return status;
}

}  // namespace

std::string effective_config(const std::string& text, int world) {
  size_t size = 0;
  check(otr_config_check(text.c_str(), world, nullptr, &size));
  std::string effective(size, '\0');
  check(otr_config_check(text.c_str(), world, effective.data(), &size));
  effective.resize(size - 1);
  return effective;
}

std::string config_of_one_rank(const std::string& text, int world) {
  const Json effective = Json::parse(effective_config(text, world));
  Json alone = Json::parse(text);
  alone.erase("train_batch_size");
  alone["gradient_accumulation_steps"] = effective["gradient_accumulation_steps"]["value"];
  return alone.dump();
}

std::vector<std::string> config_warnings(const std::string& text, int world) {
  std::vector<std::string> warnings;
  if (collect_warnings(text, warnings) == OTR_OK) return warnings;
  // One rank has another batch. In the text that it needs lines are not those of the file.
  check(collect_warnings(config_of_one_rank(text, world), warnings));
  for (std::string& warning : warnings) {
    if (warning.starts_with("line ")) warning.erase(0, warning.find(": ") + 2);
  }
  return warnings;
}

void say_warnings(const std::string& file, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) say("warning: {}: {}\n", file, warning);
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
  config->add_flag("--json", json, "Say what is wrong as JSON on standard output, warnings too");
  const auto run = [request](const Call& call) {
    const std::string text = request->file == "-" ? read_all(std::cin) : read_file(request->file);
    try {
      const std::string effective = effective_config(text, request->world);
      const std::vector<std::string> warnings = config_warnings(text, request->world);
      if (call.json) {
        Json all = Json::parse(effective);
        all["warnings"] = warnings;
        write_text("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
      } else {
        write_text("{}\n", effective);
        say_warnings(request->file, warnings);
      }
    } catch (const Fault& fault) {
      throw Fault(fault.code(), format_text("{}: {}", request->file, fault.what()));
    }
    return 0;
  };
  return {config, run, 1};
}

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
// The command `outrigger`: start local workers, check a configuration, estimate memory, look at the
// machine, tell versions.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "command.h"
#include "fault.h"
#include "text.h"

namespace outrigger::tools {
namespace {

// A pipe or socket of ours must not become the standard output of a caller who closed his.
void hold_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDWR));
  }
}

// Says what is wrong; returns the exit code.
int tell(const std::exception& error, bool json, int exit_code) {
  const auto* fault = dynamic_cast<const Fault*>(&error);
  if (json) {
    using Json = nlohmann::ordered_json;
    const int32_t status = fault != nullptr ? fault->code() : OTR_E_SYSTEM;
    const Json out = {{"error", {{"status", otr_status_name(status)}, {"message", error.what()}}}};
    write_text("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
    return 2;
  }
  if (dynamic_cast<const Misuse*>(&error) != nullptr) {
    say("{}\n", error.what());
    return 2;
  }
  const std::string status =
      fault == nullptr ? "" : format_text("{}: ", otr_status_name(fault->code()));
  say("outrigger: {}{}\n", status, error.what());
  return exit_code;
}

void require_known(const std::vector<Command>& commands, std::string_view word) {
  std::vector<std::string> names;
  for (const Command& command : commands) {
    const std::string name = command.app->get_name();
    if (name == word) return;
    if (command.app->get_group().empty()) continue;  // hidden
    names.push_back(name);
  }
  const std::string guess = nearest(word, names);
  throw Misuse(format_text(
      "outrigger: unknown command \"{}\"; {}there are {}; see outrigger --help", word,
      guess.empty() ? "" : format_text("the nearest is {}; ", guess), fmt::join(names, ", ")));
}

Command add_version(CLI::App& app, bool& json) {
  CLI::App* version = app.add_subcommand("version", "Tell the version of tool and library");
  version->add_flag("--json", json, "As JSON");
  const auto run = [](const Call& call) {
    if (call.json) {
      write_text("{}\n", nlohmann::ordered_json::parse(otr_build_info()).dump(2));
    } else {
      write_text("outrigger {} (ABI {})\n{}\n", otr_version(), otr_abi_version(), otr_build_info());
    }
    return 0;
  };
  return {version, run};
}

// What nobody asked for is named before what is missing.
void parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string odd = error.get_exit_code() == 0 ? "" : left_over(app);
    if (!odd.empty()) throw Misuse(odd);
    throw;
  }
}

int run_command(int argc, char** argv) {
  CLI::App app("Outrigger: sharded training with low-precision states", "outrigger");
  bool json = false, version = false;
  app.add_flag("--version", version, "The same as the command version");
  app.add_flag("--json", json, "The same as --json after the command");
  app.require_subcommand(0, 1);
  const std::vector<Command> commands{
      add_run(app, json),     add_config(app, json),  add_estimate(app, json),
      add_doctor(app, json),  add_inspect(app, json), add_export(app, json),
      add_import(app, json),  add_top(app, json),     add_trace(app, json),
      add_version(app, json), add_doctor_worker(app)};

  // What stands after -- is the program's, whatever it looks like.
  char** const separator = std::find(argv, argv + argc, std::string_view("--"));
  // No option before the command takes a value.
  char** const first = std::find_if(argv + 1, separator, [](const char* word) {
    return !std::string_view(word).starts_with('-');
  });
  const std::string_view word = first == separator ? "" : *first;
  // Before the arguments are understood, too; but a program of `run` may have a --json of its own.
  const bool wants_json =
      word != "run" && std::find(argv, separator, std::string_view("--json")) != separator;
  const Command* chosen = nullptr;
  try {
    if (first != separator) require_known(commands, word);
    parse(app, static_cast<int>(separator - argv), argv);
    for (const Command& command : commands) {
      if (command.app->parsed() || (version && command.app->get_name() == "version")) {
        chosen = &command;
        break;
      }
    }
    if (chosen == nullptr) throw Misuse("outrigger: no command is given; see outrigger --help");
    Call call{json, {}};
    if (separator != argv + argc) call.rest.assign(separator + 1, argv + argc);
    return chosen->run(call);
  } catch (const CLI::ParseError& error) {
    if (wants_json && error.get_exit_code() != 0) return tell(Misuse(error.what()), true, 2);
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::bad_alloc&) {
    const Fault fault(OTR_E_OUT_OF_MEMORY,
                      "memory ran out; the input asks for more than this process may have");
    return tell(fault, json || wants_json, chosen == nullptr ? 1 : chosen->fault_code);
  } catch (const std::exception& error) {
    return tell(error, json || wants_json, chosen == nullptr ? 1 : chosen->fault_code);
  }
}

}  // namespace
}  // namespace outrigger::tools

int main(int argc, char** argv) {
  try {
    outrigger::tools::hold_standard_descriptors();
    return outrigger::tools::run_command(argc, argv);
  } catch (...) {  // not even enough memory to say so
    return 2;
  }
}

// SPDX-License-Identifier: Apache-2.0
// `outrigger trace`: the traces of all ranks of a run in one file.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "command.h"
#include "fault.h"
#include "records.h"
#include "text.h"

namespace outrigger::tools {
namespace {

constexpr std::string_view kBegin = R"({"pid":)";

// A line's event as one of process `number`. Every rank's file is a process of its own in the
// trace, also where two are of one process.
std::string renumbered(std::string_view line, size_t number, const std::string& path) {
  const size_t end = line.find(',', kBegin.size());
  if (!line.starts_with(kBegin) || !line.ends_with("},") || end == std::string_view::npos) {
    fail(OTR_E_CORRUPT, "{} is no trace of Outrigger: a line begins with {}", path,
         shown(std::string(line.substr(0, 40))));
  }
  return format_text("{}{}{}", kBegin, number, line.substr(end, line.size() - end - 1));
}

size_t append(std::ofstream& out, const std::filesystem::path& path, size_t number, bool is_first) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return 0;  // its process was ended before the first event
  if (line != "[") renumbered(line, number, path.string());  // says what is wrong
  size_t events = 0;
  while (std::getline(in, line)) {
    if (in.eof()) break;  // without its end: the process was killed in the middle
    out << (is_first && events == 0 ? "\n" : ",\n") << renumbered(line, number, path.string());
    ++events;
  }
  return events;
}

[[noreturn]] void fail_writing(const std::string& path) {
  fail(OTR_E_IO, "cannot write {}: {}", path, std::generic_category().message(errno));
}

int merge(const std::string& folder, const std::string& output, bool replace, bool json) {
  const auto files = rank_files(folder, ".trace.json");
  if (files.empty()) {
    fail(OTR_E_NOT_FOUND, "{} has no traces: outrigger run --trace {} -- PROGRAM makes them",
         folder, folder);
  }
  if (!replace && std::filesystem::exists(output)) {
    fail(OTR_E_DUPLICATE, "{} is there already: name another file, or give --replace", output);
  }
  const std::string unfinished = output + ".unfinished";
  size_t events = 0;
  try {
    std::ofstream out(unfinished, std::ios::trunc);
    if (!out) fail_writing(unfinished);
    out << "[";
    for (size_t i = 0; i < files.size(); ++i) events += append(out, files[i], i + 1, events == 0);
    out << "\n]\n";
    out.close();
    if (!out) fail_writing(unfinished);
    if (std::rename(unfinished.c_str(), output.c_str()) != 0) fail_writing(output);
  } catch (...) {
    std::remove(unfinished.c_str());
    throw;
  }
  if (json) {
    const nlohmann::ordered_json told = {
        {"path", output}, {"ranks", files.size()}, {"events", events}};
    write_text("{}\n", told.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    write_text("{}: {} events of {} file{}; open it in ui.perfetto.dev or chrome://tracing\n",
               output, events, files.size(), files.size() == 1 ? "" : "s");
  }
  return 0;
}

}  // namespace

Command add_trace(CLI::App& app, bool& json) {
  struct Request {
    std::string folder, output = "trace.json";
    bool replace = false;
  };
  const auto request = std::make_shared<Request>();
  CLI::App* command = app.add_subcommand(
      "trace", "Put the traces of all ranks into one file, for Perfetto or chrome://tracing");
  command->add_option("folder", request->folder, "Of traces: outrigger run --trace FOLDER")
      ->required();
  command->add_option("-o,--output", request->output, "The file to write")->capture_default_str();
  command->add_flag("--replace", request->replace, "Replace a file that is there");
  command->add_flag("--json", json, "Say how it went as JSON");
  const auto run = [request](const Call& call) {
    return merge(request->folder, request->output, request->replace, call.json);
  };
  return {command, run, 1};
}

}  // namespace outrigger::tools

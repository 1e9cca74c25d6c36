// SPDX-License-Identifier: Apache-2.0
// `outrigger trace`: the traces of all ranks of a run in one file, by rank 0's clock.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

// How much a rank's clock shows more than rank 0's, as its file tells; else unknown.
struct RankClock {
  int64_t offset = 0, bound = 0;
  bool is_known = false;
};

RankClock clock_of(const std::string& line) {
  constexpr std::string_view kMark = R"("name":"clock")";
  if (line.find(kMark) == std::string::npos || line.find(R"("ph":"M")") == std::string::npos) {
    return {};
  }
  const size_t comma = line.find_last_not_of(',');
  const auto json = nlohmann::json::parse(line.substr(0, comma + 1), nullptr, false);
  if (!json.is_object() || json.value("name", "") != "clock") return {};
  const auto args = json.value("args", nlohmann::json::object());
  if (!args.is_object() || !args.contains("offset_ns") || !args.contains("bound_ns")) return {};
  if (!args["offset_ns"].is_number_integer() || !args["bound_ns"].is_number_integer()) return {};
  return {args["offset_ns"].get<int64_t>(), args["bound_ns"].get<int64_t>(), true};
}

// The clock stands behind the first events where a trace began before the ranks had met.
RankClock find_clock(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (const RankClock clock = clock_of(line); clock.is_known) return clock;
  }
  return {};
}

// An event's line with its time by rank 0's clock.
std::string corrected(std::string line, const RankClock& clock) {
  constexpr std::string_view kTime = R"("ts":)";
  const size_t begin = line.find(kTime);
  if (clock.offset == 0 || begin == std::string::npos) return line;
  const size_t at = begin + kTime.size();
  int64_t microseconds = 0, thousandths = 0;
  const char* const last = line.data() + line.size();
  const auto whole = std::from_chars(line.data() + at, last, microseconds);
  if (whole.ec != std::errc() || whole.ptr == last || *whole.ptr != '.') return line;
  const auto rest = std::from_chars(whole.ptr + 1, last, thousandths);
  if (rest.ec != std::errc() || rest.ptr != whole.ptr + 4) return line;
  int64_t time = 0;
  if (microseconds < 0 || thousandths < 0 || __builtin_mul_overflow(microseconds, 1000, &time) ||
      __builtin_add_overflow(time, thousandths, &time) ||
      __builtin_sub_overflow(time, clock.offset, &time) || time < 0) {
    return line;
  }
  const auto end = static_cast<size_t>(rest.ptr - line.data());
  return line.replace(at, end - at, format_text("{}.{:03}", time / 1000, time % 1000));
}

size_t append(std::ofstream& out, const std::filesystem::path& path, size_t number, bool is_first,
              const RankClock& clock) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return 0;  // its process was ended before the first event
  if (line != "[") renumbered(line, number, path.string());  // says what is wrong
  size_t events = 0;
  while (std::getline(in, line)) {
    if (in.eof()) break;  // without its end: the process was killed in the middle
    out << (is_first && events == 0 ? "\n" : ",\n")
        << corrected(renumbered(line, number, path.string()), clock);
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
  std::vector<RankClock> clocks;
  try {
    std::ofstream out(unfinished, std::ios::trunc);
    if (!out) fail_writing(unfinished);
    out << "[";
    for (size_t i = 0; i < files.size(); ++i) {
      clocks.push_back(find_clock(files[i]));
      events += append(out, files[i], i + 1, events == 0, clocks.back());
    }
    out << "\n]\n";
    out.close();
    if (!out) fail_writing(unfinished);
    if (std::rename(unfinished.c_str(), output.c_str()) != 0) fail_writing(output);
  } catch (...) {
    std::remove(unfinished.c_str());
    throw;
  }
  int64_t most = 0, bound = 0;
  for (const RankClock& clock : clocks) {
    most = std::max(most, std::abs(std::max(clock.offset, -INT64_MAX)));
    bound = std::max(bound, clock.bound);
  }
  const bool has_clocks = std::any_of(clocks.begin(), clocks.end(),
                                      [](const RankClock& clock) { return clock.is_known; });
  if (json) {
    nlohmann::ordered_json told = {{"path", output}, {"ranks", files.size()}, {"events", events}};
    if (has_clocks) told["clocks"] = {{"largest_offset_ns", most}, {"bound_ns", bound}};
    write_text("{}\n", told.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    write_text("{}: {} events of {} file{}; open it in ui.perfetto.dev or chrome://tracing\n",
               output, events, files.size(), files.size() == 1 ? "" : "s");
    if (has_clocks) {
      write_text("clocks of hosts: up to {:.3f} ms apart, corrected to within {:.3f} ms\n",
                 static_cast<double>(most) * 1e-6, static_cast<double>(bound) * 1e-6);
    }
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

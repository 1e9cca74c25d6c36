// SPDX-License-Identifier: Apache-2.0
// `outrigger top`: the ranks of a run, as their records show them.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "fault.h"
#include "records.h"
#include "signals.h"
#include "text.h"

namespace outrigger::tools {
namespace {

constexpr double kSilent = 10;  // seconds without a record that are worth a word
constexpr size_t kPhaseCount = 4;
constexpr const char* kPhases[kPhaseCount] = {"backward", "reduce", "update", "publish"};

double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double value_at(const Record& record, const char* pointer) {
  const nlohmann::ordered_json::json_pointer place(pointer);
  if (!record.contains(place) || !record[place].is_number()) return NAN;
  return record[place].get<double>();
}

std::string figure(const Record& record, const char* pointer) {
  const double value = value_at(record, pointer);
  return std::isnan(value) ? "-" : format_text("{:.4g}", value);
}

std::string gigabytes(const Record& record, const char* pointer) {
  const double value = value_at(record, pointer);
  return std::isnan(value) ? "-" : format_text("{:.2f}", value * 1e-9);
}

std::string state_of(const RankFile& file, double now) {
  if (!file.end.is_null()) {
    const std::string how = file.end.value("how", "");
    return how == "finalized" || how == "destroyed" ? how : "failed";
  }
  if (file.is_gone) return "gone";
  const double silent = now - file.written;
  const double usual = value_at(file.step, "/seconds/elapsed");
  if (silent > std::max(kSilent, std::isnan(usual) ? kSilent : 5 * usual)) {
    return format_text("silent {:.0f} s", silent);
  }
  return file.step.is_null() ? "begins" : "runs";
}

// Shares of the time of the last window; what is left is the host's own.
std::string shares_of(const Record& step) {
  const double elapsed = value_at(step, "/seconds/elapsed");
  std::string text;
  double left = 100;
  for (const char* phase : kPhases) {
    const double seconds = value_at(step, format_text("/seconds/{}", phase).c_str());
    if (std::isnan(seconds) || !(elapsed > 0)) {
      text += format_text("{:>9}", "-");
      continue;
    }
    const double share = 100 * seconds / elapsed;
    left -= share;
    text += format_text("{:>8.0f}%", share);
  }
  const bool known = elapsed > 0;
  return text + (known ? format_text("{:>6.0f}%", std::max(0.0, left)) : format_text("{:>7}", "-"));
}

std::string name_of(const RankFile& file) {
  const Record& name = file.start["name"];
  return name.is_string() ? shown(name.get<std::string>()) : "";
}

std::vector<std::string> table_of(const std::string& folder, const std::vector<RankFile>& files,
                                  double now) {
  std::vector<std::string> lines;
  if (files.empty()) return {format_text("{}: no records yet", folder)};
  int64_t skipped = 0;
  double slowest = 0;
  size_t width = 4, place_width = 12;
  for (const RankFile& file : files) {
    skipped =
        std::max(skipped, file.step.is_null() ? 0 : file.step.value("skipped_steps", int64_t{0}));
    const double elapsed = value_at(file.step, "/seconds/elapsed");
    if (elapsed > slowest) slowest = elapsed;
    width = std::max(width, name_of(file).size());
    place_width = std::max(place_width, shown(file.start.value("host", "")).size() + 9);
  }
  lines.push_back(format_text("{}: {} rank{}, {} skipped step{}, slowest window {:.3g} s", folder,
                              files.size(), files.size() == 1 ? "" : "s", skipped,
                              skipped == 1 ? "" : "s", slowest));
  lines.push_back(
      format_text("{:<{}} {:>5} {:<{}} {:<12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} "
                  "{:>9}{:>9}{:>9}{:>9}{:>7} {:>9} {:>10}",
                  "name", width, "rank", "host:process", place_width, "state", "step", "loss",
                  "norm", "scale", "lr", "seconds", "backward", "reduce", "update", "publish",
                  "host", "engine GB", "process GB"));
  for (const RankFile& file : files) {
    const Record& step = file.step;
    const int64_t windows = step.is_null() ? 0
                                           : step.value("applied_steps", int64_t{0}) +
                                                 step.value("skipped_steps", int64_t{0});
    const std::string place = format_text("{}:{}", shown(file.start.value("host", "")),
                                          file.start.value("process", int64_t{0}));
    lines.push_back(format_text(
        "{:<{}} {:>5} {:<{}} {:<12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {} {:>9} {:>10}",
        name_of(file), width, file.start.value("rank", int64_t{0}), place, place_width,
        state_of(file, now), windows, figure(step, "/notes/loss"), figure(step, "/grad_norm"),
        figure(step, "/loss_scale"), figure(step, "/lr"), figure(step, "/seconds/elapsed"),
        shares_of(step), gigabytes(step, "/memory/host/resident"),
        gigabytes(step, "/memory/process/resident")));
  }
  for (const RankFile& file : files) {
    if (state_of(file, now) != "failed") continue;
    lines.push_back(format_text("rank {}: {}", file.start.value("rank", int64_t{0}),
                                shown(file.end.value("how", ""))));
  }
  return lines;
}

Record json_of(const std::vector<RankFile>& files, double now) {
  Record all = Record::array();
  for (const RankFile& file : files) {
    all.push_back({{"file", file.path},
                   {"state", state_of(file, now)},
                   {"start", file.start},
                   {"step", file.step},
                   {"end", file.end}});
  }
  return all;
}

void print(const std::vector<std::string>& lines, bool on_terminal) {
  winsize size{};
  const bool known = on_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 4;
  const size_t most = known ? size.ws_row - size_t{2} : lines.size();
  std::string text = on_terminal ? "\x1b[H" : "";
  for (size_t i = 0; i < std::min(most, lines.size()); ++i) {
    const std::string_view line(lines[i]);
    text += known ? line.substr(0, size.ws_col) : line;
    text += on_terminal ? "\x1b[K\n" : "\n";
  }
  if (lines.size() > most)
    text += format_text("{} lines more: --once\x1b[K\n", lines.size() - most);
  if (on_terminal) text += "\x1b[J";
  write_text("{}", text);
  std::fflush(stdout);
}

int top(const std::string& folder, bool once, double interval, bool json) {
  std::vector<RankFile> files = read_records(folder);
  if (json) {
    write_text(
        "{}\n",
        json_of(files, now_in_seconds()).dump(2, ' ', false, Record::error_handler_t::replace));
    return 0;
  }
  const bool live = !once && isatty(STDOUT_FILENO) == 1;
  if (!live) {
    print(table_of(folder, files, now_in_seconds()), false);
    return 0;
  }
  const Signals signals;
  write_text("\x1b[2J");
  while (true) {
    print(table_of(folder, files, now_in_seconds()), true);
    const auto over = [](const RankFile& file) { return file.is_over(); };
    if (!files.empty() && std::all_of(files.begin(), files.end(), over)) return 0;
    if (signals.wait_for_end(interval) != 0) return 0;
    files = read_records(folder);
  }
}

}  // namespace

Command add_top(CLI::App& app, bool& json) {
  struct Request {
    std::string folder;
    bool once = false;
    double interval = 1;
  };
  const auto request = std::make_shared<Request>();
  CLI::App* command = app.add_subcommand(
      "top", "Show the ranks of a run, by the records that they write, until all have ended");
  command->add_option("folder", request->folder, "Of records: outrigger run --records FOLDER")
      ->required();
  command->add_flag("--once", request->once,
                    "Show them once; so it is where standard output is no terminal, too");
  command->add_option("--interval", request->interval, "Seconds between two looks")
      ->check(number_in(0.1, 3600, "seconds"))
      ->capture_default_str();
  command->add_flag("--json", json, "Once, as JSON: each rank's first, last and closing record");
  command->footer(
      "seconds: of the last window, and the shares of it that went into the backward passes, the\n"
      "reduction of gradients, the update and publishing; the rest is the host's own.\n"
      "gone: the process has ended without a word; silent: it has not written for a while.");
  const auto run = [request](const Call& call) {
    return top(request->folder, request->once, request->interval, call.json);
  };
  return {command, run, 1};
}

}  // namespace outrigger::tools

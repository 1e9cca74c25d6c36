// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "arguments.h"
#include "command.h"
#include "core/observe/flight_folder.h"
#include "core/observe/flight_format.h"
#include "cores.h"
#include "fault.h"
#include "launch.h"
#include "text.h"

namespace outrigger::tools {
namespace {

// -np 2 is read as -n p.
std::string check_workers(const std::string& text) {
  int workers = 0;
  if (CLI::detail::lexical_cast(text, workers) && workers >= 1 && workers <= 4096) return {};
  throw Misuse(format_text(
      "outrigger run: -n {} is not a number from 1 to 4096; write outrigger run -n 2 -- PROGRAM",
      text));
}

void check_fewer(const LaunchOptions& options) {
  if (options.min_workers == 0) return;
  if (options.min_workers > options.workers) {
    throw Misuse(format_text(
        "outrigger run: --min-workers {} is more than the {} of -n; give a number from 1 to {}",
        options.min_workers, options.workers, options.workers));
  }
  if (options.max_restarts == 0) {
    throw Misuse(format_text(
        "outrigger run: --min-workers {} is about restarts, and there are none; add --max-restarts "
        "with their number",
        options.min_workers));
  }
}

std::string summary(const LaunchResult& result) {
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (const WorkerEnd& w : result.workers) {
    workers.push_back({{"rank", w.rank},
                       {"process", w.pid},
                       {"exit_code", w.exit_code},
                       {"fate", w.fate},
                       {"seconds", w.seconds},
                       {"first_to_fail", w.first_to_fail}});
  }
  const nlohmann::ordered_json all = {{"exit_code", result.exit_code},
                                      {"restarts", result.restarts},
                                      {"seconds", result.seconds},
                                      {"workers", workers}};
  return all.dump();
}

// Workers inherit it, wherever they go.
void watch_in(const char* variable, const std::string& folder) {
  if (folder.empty()) return;
  setenv(variable, std::filesystem::absolute(folder).c_str(), 1);
}

// Where a worker has left its flight recorder's file, how to read those of all.
void say_how_to_inspect(const LaunchResult& result) {
  const observe::FlightPlace place = observe::flight_place();
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(place.folder, none)) {
    for (const WorkerEnd& worker : result.workers) {
      const std::string end = format_text("-{}{}", worker.pid, observe::kFlightSuffix);
      if (!entry.path().filename().string().ends_with(end)) continue;
      say("outrigger run: outrigger inspect{} --process {} shows what each rank did last\n",
          place.is_stated ? " " + place.folder : "", worker.pid);
      return;
    }
  }
}

}  // namespace

Command add_run(CLI::App& app, bool& json) {
  struct Request {
    LaunchOptions launch;
    std::string cores, records, trace;
  };
  const auto request = std::make_shared<Request>();
  LaunchOptions& options = request->launch;
  CLI::App* run = app.add_subcommand("run",
                                     "Start N local workers: outrigger run -n N -- PROGRAM "
                                     "[ARGUMENTS]; end and report all if one dies");
  run->add_option("-n,--workers", options.workers, "Number of workers")
      ->check(CLI::Validator(check_workers, "1 to 4096"))
      ->capture_default_str();
  run->add_option("--cores", request->cores,
                  "Cores to share out, such as 0-3,8 (default: those this command may use)");
  run->add_flag("!--no-bind", options.bind, "Do not bind workers to their share of the cores");
  run->add_option("--grace", options.grace_seconds,
                  "Seconds that the others have to end by themselves after one failed")
      ->check(number_in(0, 3600, "seconds"))
      ->capture_default_str();
  run->add_option("--max-restarts", options.max_restarts,
                  "How often all workers are started again after one failed")
      ->check(number_in(0, 1000000, "restarts"))
      ->capture_default_str();
  run->add_option("--min-workers", options.min_workers,
                  "A restart after a worker was killed by a signal has one worker fewer, but not "
                  "fewer than these (default: as many as before)")
      ->check(number_in(1, 4096, "workers"));
  run->add_option("--restart-pause", options.restart_pause_seconds,
                  "Seconds before the first restart; they double while attempts last less than a "
                  "minute, up to a minute")
      ->check(number_in(0, 3600, "seconds"))
      ->capture_default_str();
  run->add_option("--records", request->records,
                  "Folder for records of every rank's steps, which outrigger top shows");
  run->add_option("--trace", request->trace,
                  "Folder for a trace of every rank, which outrigger trace puts together");
  run->add_flag("-v,--verbose", options.verbose, "Tell process number and cores of each worker");
  run->add_flag("--json", json,
                "End with one line of JSON on standard error: how each worker ended");
  run->prefix_command();  // from the first word that is no option of run on, all belongs to the
                          // program
  run->footer(
      "Workers get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,\n"
      "TORCHELASTIC_RESTART_COUNT (0 at first), TORCHELASTIC_MAX_RESTARTS, and\n"
      "OMP_NUM_THREADS and OPENBLAS_NUM_THREADS (unless set) for their share of the cores. Rank 0 "
      "has\n"
      "the terminal; the others' output goes to standard error, each line marked [rank k], in "
      "pieces of 64 KiB if "
      "longer.\n"
      "The exit code is that of the first worker that failed (128 + number, if by a signal).");
  const auto start = [request, run](const Call& call) {
    LaunchOptions& launch_options = request->launch;
    launch_options.program = run->remaining();
    launch_options.program.insert(launch_options.program.end(), call.rest.begin(), call.rest.end());
    if (launch_options.program.empty() || launch_options.program[0].starts_with('-')) {
      const std::string fault =
          launch_options.program.empty()
              ? "no program is given"
              : format_text("unknown option {}", unknown_option(*run, launch_options.program[0]));
      throw Misuse(format_text("outrigger run: {}; write outrigger run -n 2 -- PROGRAM", fault));
    }
    check_fewer(launch_options);
    launch_options.cores = in_machine_order(
        request->cores.empty() ? available_cores() : parse_cores(request->cores), machine_here());
    watch_in("OTR_RECORDS", request->records);
    watch_in("OTR_TRACE", request->trace);
    const LaunchResult result = launch(launch_options);
    if (result.exit_code != 0) say_how_to_inspect(result);
    if (call.json) say("{}\n", summary(result));
    return result.exit_code;
  };
  return {run, start, 1};
}

}  // namespace outrigger::tools

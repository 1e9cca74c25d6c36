// SPDX-License-Identifier: Apache-2.0
// The command `outrigger`: start local workers, check a configuration, estimate memory, tell
// versions.
#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "config_command.h"
#include "cores.h"
#include "estimate_command.h"
#include "launch.h"
#include "outrigger.h"
#include "say.h"

namespace {

using outrigger::tools::LaunchOptions;

std::string version_text() {
  return fmt::format("outrigger {} (ABI {})\n{}", otr_version(), otr_abi_version(),
                     otr_build_info());
}

CLI::App* add_run(CLI::App& app, LaunchOptions& options, std::string& cores) {
  CLI::App* run = app.add_subcommand("run",
                                     "Start N local workers: outrigger run -n N -- PROGRAM "
                                     "[ARGUMENTS]; end and report all if one dies");
  run->add_option("-n,--workers", options.workers, "Number of workers")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  run->add_option("--cores", cores,
                  "Cores to share out, such as 0-3,8 (default: those this command may use)");
  run->add_flag("!--no-bind", options.bind, "Do not bind workers to their share of the cores");
  run->add_option("--grace", options.grace_seconds,
                  "Seconds that the others have to end by themselves after one failed")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  run->add_flag("-v,--verbose", options.verbose, "Tell process number and cores of each worker");
  run->prefix_command();  // from the first word that is no option of run on, all belongs to the
                          // program
  run->footer(
      "Workers get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and\n"
      "OMP_NUM_THREADS and OPENBLAS_NUM_THREADS (unless set) for their share of the cores. Rank 0 "
      "has\n"
      "the terminal; the others' output goes to standard error, each line marked [rank k], in "
      "pieces of 64 KiB if "
      "longer.\n"
      "The exit code is that of the first worker that failed (128 + number, if by a signal).");
  return run;
}

// A pipe or socket of ours must not become the standard output of a caller who closed his.
void hold_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDWR));
  }
}

int run_command(int argc, char** argv) {
  CLI::App app("Outrigger: sharded training with low-precision states", "outrigger");
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);

  LaunchOptions launch;
  std::string cores;
  CLI::App* run = add_run(app, launch, cores);

  std::string file;
  int world = 1;
  CLI::App* config = app.add_subcommand(
      "config", "Check a configuration; print every value in effect with its origin");
  config->add_option("file", file, "JSON file, or - for standard input")->required();
  config->add_option("--world", world, "Number of ranks")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();

  outrigger::tools::EstimateRequest request;
  CLI::App* estimate = app.add_subcommand(
      "estimate", "Say what a model needs on each rank and host, and what would fit");
  estimate
      ->add_option("model", request.model,
                   "safetensors file, Hugging Face config.json, or JSON {\"name\": [extents], …}")
      ->required();
  estimate->add_option("--config", request.config, "Configuration (default: float32, stage 0)");
  estimate->add_option("--world", request.world, "Number of ranks")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  estimate->add_option("--ranks-per-host", request.ranks_per_host, "Default: all on one host")
      ->check(CLI::Range(1, 1 << 20));
  estimate
      ->add_option("--host-gib", request.host_gib, "A host's memory (default: what is free here)")
      ->check(CLI::PositiveNumber);
  estimate->add_flag("--json", request.json, "As JSON, in bytes");

  const std::string_view word = argc > 1 ? argv[1] : "-";
  const auto named = [&](const CLI::App* command) { return command->get_name() == word; };
  if (!word.starts_with('-') && app.get_subcommands(named).empty()) {
    outrigger::tools::say(
        "outrigger: unknown command \"{}\"; there are run, config and estimate; see outrigger "
        "--help\n",
        word);
    return 2;
  }

  // What stands after -- is the program's, whatever it looks like.
  char** const separator = std::find(argv, argv + argc, std::string_view("--"));
  try {
    app.parse(static_cast<int>(separator - argv), argv);
    if (config->parsed()) return outrigger::tools::check_config(file, world);
    if (estimate->parsed()) return outrigger::tools::estimate(request);
    launch.program = run->remaining();
    if (separator != argv + argc) {
      launch.program.insert(launch.program.end(), separator + 1, argv + argc);
    }
    if (launch.program.empty() || launch.program[0].starts_with('-')) {
      outrigger::tools::say("outrigger run: {}; write outrigger run -n 2 -- PROGRAM\n",
                            launch.program.empty()
                                ? "no program is given"
                                : fmt::format("unknown option {}", launch.program[0]));
      return 2;
    }
    launch.cores =
        cores.empty() ? outrigger::tools::available_cores() : outrigger::tools::parse_cores(cores);
    return outrigger::tools::launch(launch);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_descriptors();
  try {
    return run_command(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "outrigger: %s\n", error.what());
    return 1;
  }
}

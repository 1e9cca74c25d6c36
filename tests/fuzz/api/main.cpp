// SPDX-License-Identifier: Apache-2.0
// otr_api_fuzz: programs from consecutive seeds, for a time or a number; or those in files.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "outrigger.h"
#include "tests/fuzz/api/program.h"
#include "tests/fuzz/api/tally.h"

namespace {

constexpr const char* kUsage =
    "usage: otr_api_fuzz [--seed N] [--seconds S] [--programs N] [--timeout S] [--verbose] "
    "[--trace] "
    "[--write FOLDER] [FILE or FOLDER…]\n"
    "--write: makes files of the programs, for libFuzzer to begin with or to minimise, and runs "
    "none\n";

struct Options {
  uint64_t seed = 1;
  double seconds = 1e9, timeout = 0.5;
  uint64_t programs = UINT64_MAX;
  bool verbose = false, trace = false;
  std::string write;
  std::vector<std::string> paths;
};

bool read(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--verbose") {
      options.verbose = true;
    } else if (name == "--trace") {
      options.trace = true;
    } else if (name.rfind("--", 0) != 0) {
      options.paths.push_back(name);
    } else if (i + 1 == argc) {
      return false;
    } else if (name == "--seed") {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(argv[++i], nullptr);
    } else if (name == "--programs") {
      options.programs = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--write") {
      options.write = argv[++i];
    } else if (name == "--timeout") {
      options.timeout = std::strtod(argv[++i], nullptr);
    } else {
      return false;
    }
  }
  return true;
}

void run_file(const std::filesystem::path& path, const Options& options) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  otr_fuzz::run_program(bytes, options.timeout, options.trace);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!read(argc, argv, options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  // hwloc's plugins come with the first call. In the middle of a program they may be loaded where a
  // closed plugin of ours was, and thread sanitizers still see the writes of that one there.
  size_t size = 0;
  if (otr_machine_info(nullptr, &size) != OTR_OK) return 1;
  for (const std::string& path : options.paths) {
    if (!std::filesystem::is_directory(path)) {
      run_file(path, options);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (options.verbose) std::fprintf(stderr, "%s\n", entry.path().c_str());
      run_file(entry.path(), options);
    }
  }
  if (!options.paths.empty()) return 0;
  const auto start = std::chrono::steady_clock::now();
  uint64_t done = 0;
  for (; done < options.programs; ++done) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (spent.count() > options.seconds) break;
    if (options.verbose) std::fprintf(stderr, "seed %llu\n", 0ULL + options.seed + done);
    const std::vector<uint8_t> program = otr_fuzz::program_of(options.seed + done);
    if (options.write.empty()) {
      otr_fuzz::run_program(program, options.timeout, options.trace);
    } else {
      std::ofstream file(options.write + "/" + std::to_string(options.seed + done),
                         std::ios::binary);
      file.write(reinterpret_cast<const char*>(program.data()),
                 static_cast<std::streamsize>(program.size()));
    }
  }
  std::printf("%llu programs from seed %llu on: %s\n", 0ULL + done, 0ULL + options.seed,
              options.write.empty() ? "nothing found" : "written");
  const auto print = [](const char* what, const otr_fuzz::Tally& tally) {
    std::printf("%s: %lld, %lld of them on a device\n", what, 0LL + tally.all,
                0LL + tally.on_device);
  };
  print("passes that ended", otr_fuzz::passes_ended);
  print("steps that succeeded", otr_fuzz::steps_done);
  return 0;
}

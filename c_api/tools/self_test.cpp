// SPDX-License-Identifier: Apache-2.0
#include "self_test.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fault.h"
#include "launch.h"
#include "text.h"

namespace outrigger::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWorkers = 2;

// Reports of all workers come through one pipe, each shorter than what a write keeps whole.
class Reports {
 public:
  Reports() {
    if (pipe2(ends_.data(), 0) != 0) {  // the workers inherit the writing end
      fail(OTR_E_SYSTEM, "cannot make a pipe: {}", std::strerror(errno));
    }
    fcntl(ends_[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;
  ~Reports() {
    close(ends_[0]);
    close(ends_[1]);
  }

  [[nodiscard]] int writing_end() const { return ends_[1]; }
  // What has come; the workers have ended.
  [[nodiscard]] std::vector<Json> take() const {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = read(ends_[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<size_t>(got));
    }
    std::vector<Json> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      Json report = Json::parse(line, nullptr, false);
      if (report.is_object()) lines.push_back(std::move(report));
    }
    return lines;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

void judge(const std::vector<Json>& reports, const LaunchResult& run, double limit_seconds,
           SelfTest& test) {
  for (const char* name : kPhases) {
    double slowest = 0;
    std::vector<int> missing;
    for (int rank = 0; rank < kWorkers; ++rank) {
      const auto found = std::ranges::find_if(reports, [&](const Json& r) {
        return r.value("rank", -1) == rank && r.value("phase", "") == name;
      });
      if (found == reports.end()) {
        missing.push_back(rank);
      } else if (found->contains("error")) {
        test.failure =
            format_text("{} failed on rank {}: {}", name, rank, found->value("error", "unknown"));
        return;
      } else {
        slowest = std::max(slowest, found->value("seconds", 0.0));
      }
    }
    if (!missing.empty()) {
      const WorkerEnd& worker = run.workers.at(static_cast<size_t>(missing[0]));
      test.failure = run.limit_reached
                         ? format_text("{} was not done on rank {} after {:g} s", name, missing[0],
                                       limit_seconds)
                         : format_text("rank {} {} in {}", missing[0], worker.fate, name);
      return;
    }
    test.phases.emplace_back(name, slowest);
  }
  if (run.exit_code != 0) {
    test.failure = format_text("a worker did not end well (exit code {})", run.exit_code);
  }
}

}  // namespace

SelfTest self_test(double limit_seconds) {
  SelfTest test;
  try {
    const Reports reports;
    LaunchOptions options;
    options.workers = kWorkers;
    options.cores = in_machine_order(available_cores(), machine_here());
    options.grace_seconds = 1;
    options.limit_seconds = limit_seconds;
    options.quiet = true;
    options.program = {"/proc/self/exe", "doctor-worker", std::to_string(reports.writing_end())};
    const LaunchResult run = launch(options);
    test.seconds = run.seconds;
    judge(reports.take(), run, limit_seconds, test);
  } catch (const std::exception& error) {
    test.failure = error.what();
  }
  return test;
}

}  // namespace outrigger::tools

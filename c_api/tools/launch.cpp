// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "attempt.h"
#include "signals.h"
#include "text.h"

namespace outrigger::tools {
namespace {

using LaunchClock = std::chrono::steady_clock;

constexpr double kLongestPause = 60;  // unless the first one is longer
constexpr double kLasting = 60;       // an attempt of so many seconds got somewhere

// A program that fails at once is not started again and again without a breath.
class Pauses {
 public:
  explicit Pauses(double first) : first_(first), next_(first) {}
  double after(double seconds_of_attempt) {
    if (seconds_of_attempt >= kLasting) next_ = first_;
    return std::exchange(next_, std::max(first_, std::min(2 * next_, kLongestPause)));
  }

 private:
  double first_, next_;
};

const WorkerEnd* first_to_fail(const LaunchResult& result) {
  for (const WorkerEnd& worker : result.workers) {
    if (worker.first_to_fail) return &worker;
  }
  return nullptr;
}

// By a signal, or behind a shell that says so.
bool was_killed(const WorkerEnd& worker) {
  return worker.exit_code > 128 && worker.exit_code <= 128 + SIGRTMAX;
}

// A rank that ended by itself finds its place again, as a worker of torchrun does. One that was
// killed is taken for lost, as a host is there: what killed it, such as too little memory, may well
// let fewer live.
int workers_after(const WorkerEnd& failed, const LaunchOptions& options) {
  const bool fewer = options.min_workers > 0 && was_killed(failed);
  return fewer ? std::max(options.workers - 1, options.min_workers) : options.workers;
}

std::string how_many(int before, int after) {
  if (after == before) return {};
  return format_text(" with {} rank{}", after, after == 1 ? "" : "s");
}

}  // namespace

LaunchResult launch(const LaunchOptions& given) {
  LaunchOptions options = given;  // of the attempt
  const auto begin = LaunchClock::now();
  const Signals signals;
  AttemptPlace place{format_text("outrigger-{}-{}", getpid(), begin.time_since_epoch().count())};
  Pauses pauses(options.restart_pause_seconds);
  LaunchResult result;
  while (true) {
    result = run_attempt(options, signals, place);
    result.restarts = place.number;
    const WorkerEnd* failed = first_to_fail(result);
    if (failed == nullptr || place.number == options.max_restarts) break;
    const double pause = pauses.after(result.seconds);
    const int workers = workers_after(*failed, options);
    if (!options.quiet) {
      say("outrigger run: rank {} (process {}) {}; restart {} of {}{} {}\n", failed->rank,
          failed->pid, failed->fate, place.number + 1, options.max_restarts,
          how_many(options.workers, workers), pause > 0 ? format_text("in {:g} s", pause) : "now");
    }
    if (const int number = signals.wait_for_end(pause); number != 0) {
      result.ended_by = number;
      result.exit_code = 128 + number;
      if (!options.quiet) say("outrigger run: ended by signal {} before the restart\n", number);
      break;
    }
    options.workers = workers;
    ++place.number;
  }
  result.seconds = std::chrono::duration<double>(LaunchClock::now() - begin).count();
  return result;
}

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
#include "attempt.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "orphans.h"
#include "port.h"
#include "text.h"
#include "worker.h"

namespace outrigger::tools {
namespace {

using Clock = std::chrono::steady_clock;

class Attempt {
 public:
  Attempt(const LaunchOptions& options, const Signals& signals, const AttemptPlace& place)
      : options_(options), signals_(signals), place_(place) {}

  LaunchResult execute() {
    start();
    while (any_running()) look();
    if (first_failed_ != nullptr || ended_by_ != 0) end_orphans();
    for (Worker& worker : workers_) pump(worker);
    handle_signals();  // Ctrl-C ends the workers, too: they may have gone before it was read here
    if (!options_.quiet) report();
    return result();
  }

 private:
  void look() {
    wait();
    handle_signals();
    reap();
    watch_limit();
    escalate();
  }

  // What the workers of a failed run left behind holds memory and cores; after a good run it is
  // meant to stay. Bounded: a process that even SIGKILL does not end is left to the system.
  void end_orphans() {
    const double begin = seconds();
    end_others_at_ = begin;
    asked_to_end_ = false;
    while (!orphans_.running(worker_test()).empty() && seconds() < begin + 2 * kKillAfter) look();
    orphans_.reap(worker_test());
  }

  [[nodiscard]] std::function<bool(pid_t)> worker_test() const {
    return [this](pid_t pid) {
      return std::any_of(workers_.begin(), workers_.end(),
                         [&](const Worker& w) { return w.running() && w.pid() == pid; });
    };
  }

  void start() {
    for (int rank = 0; rank < options_.workers; rank++) {
      const Cores share = share_of(options_.cores, rank, options_.workers);
      const int threads = std::max(1, static_cast<int>(share.size()));
      workers_.emplace_back(WorkerOptions{rank, options_.workers, options_.bind ? share : Cores{},
                                          threads, std::to_string(port_.number()), place_.run_id,
                                          place_.number, options_.max_restarts, options_.program});
      if (!options_.verbose) continue;
      say("outrigger run: rank {} is process {} on cores {}\n", rank, workers_.back().pid(),
          options_.bind ? format_cores(share) : "not bound");
    }
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  [[nodiscard]] bool any_running() const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const Worker& w) { return w.running(); });
  }

  static void pump(Worker& worker) {
    if (worker.relay() != nullptr) worker.relay()->pump();
  }

  // Until there is a signal or output, or the limit is reached; at most 0.2 s.
  void wait() {
    std::vector<pollfd> descriptors{{signals_.descriptor(), POLLIN, 0}};
    for (Worker& worker : workers_) {
      if (worker.relay() != nullptr)
        descriptors.push_back({worker.relay()->descriptor(), POLLIN, 0});
    }
    const double left = 1000 * (options_.limit_seconds - seconds());
    const bool limited = options_.limit_seconds > 0 && !limit_reached_;
    poll(descriptors.data(), descriptors.size(),
         limited ? static_cast<int>(std::clamp(left + 1, 0.0, 200.0)) : 200);
    for (Worker& worker : workers_) pump(worker);
  }

  void handle_signals() {
    while (const std::optional<signalfd_siginfo> info = signals_.next()) {
      const int number = static_cast<int>(info->ssi_signo);
      if (number == SIGCHLD) continue;
      // What the terminal's Ctrl-C sends went to the workers too: they are of the same process
      // group.
      if (info->ssi_code != SI_KERNEL) signal_all(number);
      if (ended_by_ == 0) {
        ended_by_ = number;
        end_others_at_ = seconds() + options_.grace_seconds;
      } else {
        end_others_at_ = seconds();  // asked twice: no more patience
      }
    }
  }

  void reap() {
    const Worker* failed = nullptr;
    for (Worker& worker : workers_) {
      if (!worker.reap(seconds()) || !worker.failed()) continue;
      // Of two that ended since the last look, the killed one is the cause, the other a survivor
      // that said so.
      if (failed == nullptr || (worker.was_killed() && !failed->was_killed())) failed = &worker;
    }
    orphans_.reap(worker_test());
    if (failed == nullptr || first_failed_ != nullptr) return;
    first_failed_ = failed;
    if (ended_by_ != 0 || !any_running()) return;
    end_others_at_ = seconds() + options_.grace_seconds;
    if (options_.quiet) return;
    say("outrigger run: rank {} (process {}) {}; the others have {:g} s to end\n", failed->rank(),
        failed->pid(), failed->fate(), options_.grace_seconds);
  }

  void watch_limit() {
    if (options_.limit_seconds <= 0 || limit_reached_ || !any_running()) return;
    if (seconds() < options_.limit_seconds) return;
    limit_reached_ = true;
    if (end_others_at_ < 0) end_others_at_ = seconds();
  }

  // After the grace: SIGTERM, and two seconds later SIGKILL.
  void escalate() {
    if (end_others_at_ < 0 || seconds() < end_others_at_) return;
    if (!asked_to_end_) {
      signal_all(SIGTERM);
      asked_to_end_ = true;
    } else if (seconds() > end_others_at_ + kKillAfter) {
      signal_all(SIGKILL);
    }
  }

  void signal_all(int number) const {
    for (const Worker& worker : workers_) worker.signal(number);
    for (const pid_t pid : orphans_.running(worker_test())) kill(pid, number);
  }

  void report() const {
    if (first_failed_ == nullptr && ended_by_ == 0) return;
    if (ended_by_ != 0) say("outrigger run: ended by signal {}\n", ended_by_);
    for (const Worker& worker : workers_) {
      say("outrigger run: rank {} (process {}) {}{}\n", worker.rank(), worker.pid(), worker.fate(),
          is_first_to_fail(worker) ? " — the first to fail" : "");
    }
  }

  [[nodiscard]] bool is_first_to_fail(const Worker& worker) const {
    return ended_by_ == 0 && !limit_reached_ && &worker == first_failed_;
  }

  [[nodiscard]] LaunchResult result() const {
    LaunchResult all;
    all.exit_code = ended_by_ != 0             ? 128 + ended_by_
                    : limit_reached_           ? 124
                    : first_failed_ != nullptr ? first_failed_->exit_code()
                                               : 0;
    all.limit_reached = limit_reached_;
    all.ended_by = ended_by_;
    all.seconds = seconds();
    for (const Worker& w : workers_) {
      all.workers.push_back(
          {w.rank(), w.pid(), w.exit_code(), w.fate(), w.seconds(), is_first_to_fail(w)});
    }
    return all;
  }

  static constexpr double kKillAfter = 2;  // seconds from SIGTERM to SIGKILL

  const LaunchOptions& options_;
  const Clock::time_point begin_ = Clock::now();
  const Signals& signals_;
  const AttemptPlace& place_;
  ReservedPort port_;  // a new one for each attempt: what is left of the former one cannot connect
  Orphans orphans_;
  std::deque<Worker> workers_;
  const Worker* first_failed_ = nullptr;
  int ended_by_ = 0;           // signal that this command got
  double end_others_at_ = -1;  // seconds; -1: no reason yet
  bool asked_to_end_ = false;
  bool limit_reached_ = false;
};

}  // namespace

LaunchResult run_attempt(const LaunchOptions& options, const Signals& signals,
                         const AttemptPlace& place) {
  return Attempt(options, signals, place).execute();
}

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
// One worker process: how it is started, what it prints, and how it ended.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "cores.h"

namespace outrigger::tools {

// Passes a worker's output on, line by line, with its rank in front.
class Relay {
 public:
  // Takes the reading end of a pipe.
  Relay(int descriptor, int rank);
  Relay(Relay&& other) noexcept;
  Relay& operator=(Relay&&) = delete;
  ~Relay();

  // For poll(); -1 once the worker's side is closed.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  // Reads what is there, without waiting, and writes complete lines to standard error.
  void pump();

 private:
  void write_lines(bool all);

  int descriptor_;
  std::string prefix_, pending_;
};

struct WorkerOptions {
  int rank = 0, world = 1;
  Cores cores;  // empty: not bound
  int threads = 1;
  std::string port, run_id;
  int restarts = 0, max_restarts = 0;
  std::vector<std::string> program;
};

class Worker {
 public:
  // Starts the program. Throws std::runtime_error where the system refuses, the program's name
  // included.
  explicit Worker(const WorkerOptions& options);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();  // ends the process at once if it still runs

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] bool running() const noexcept { return !wait_status_; }
  [[nodiscard]] bool failed() const noexcept { return wait_status_ && *wait_status_ != 0; }
  [[nodiscard]] bool was_killed() const noexcept;  // by a signal
  [[nodiscard]] Relay* relay() noexcept { return relay_ ? &*relay_ : nullptr; }

  // Notes the end of the process if it came; `seconds` is the time since the start of the run. True
  // when it came with this call.
  bool reap(double seconds);
  // Sends a signal unless the process has ended; it is not waited for yet, so its number is still
  // its own.
  void signal(int number) const noexcept;

  [[nodiscard]] int exit_code() const noexcept;  // 128 + number for a signal
  [[nodiscard]] double seconds() const noexcept { return end_seconds_; }  // when it ended
  [[nodiscard]] std::string fate() const;  // "was killed by signal 9 (Killed) after 2.1 s"

 private:
  int rank_;
  pid_t pid_ = -1;
  std::optional<int> wait_status_;
  double end_seconds_ = 0;
  std::optional<Relay> relay_;
};

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
// `outrigger run`: starts local workers and looks after them until all have ended.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cores.h"

namespace outrigger::tools {

struct LaunchOptions {
  int workers = 1;
  Cores cores;
  bool bind = true;
  double grace_seconds = 5;
  double limit_seconds = 0;  // after it all are ended; 0: none
  bool verbose = false;
  bool quiet = false;  // failures are in the result only
  std::vector<std::string> program;
};

struct WorkerEnd {
  int rank;
  pid_t pid;
  int exit_code;     // 128 + number for a signal
  std::string fate;  // in words
  double seconds;    // from the start of the run
  bool first_to_fail;
};

struct LaunchResult {
  int exit_code = 0;  // 0, that of the first worker that failed, 124 if the limit was reached, or
                      // 128 + the signal that ended the run
  bool limit_reached = false;
  double seconds = 0;
  std::vector<WorkerEnd> workers;
};

// Throws std::runtime_error where a worker cannot be started.
[[nodiscard]] LaunchResult launch(const LaunchOptions& options);

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
// `outrigger run`: starts local workers and looks after them until all have ended; starts them all
// again where one failed, as often as it may.
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
  double limit_seconds = 0;          // after it all are ended; 0: none
  int max_restarts = 0;              // of all workers, after one failed
  int min_workers = 0;               // a restart has one fewer after one was killed, down to these;
                                     // 0: never
  double restart_pause_seconds = 1;  // before the first; it doubles while attempts are short
  bool verbose = false;
  bool quiet = false;  // failures are in the result only
  std::vector<std::string> program;
};

struct WorkerEnd {
  int rank;
  pid_t pid;
  int exit_code;     // 128 + number for a signal
  std::string fate;  // in words
  double seconds;    // from the start of its attempt
  bool first_to_fail;
};

struct LaunchResult {
  int exit_code = 0;  // 0, that of the first worker that failed, 124 if the limit was reached, or
                      // 128 + the signal that ended the run
  bool limit_reached = false;
  int ended_by = 0;  // signal that this command got
  int restarts = 0;
  double seconds = 0;
  std::vector<WorkerEnd> workers;  // of the last attempt
};

// A run that a signal or its limit ended is not started again. Throws std::runtime_error where a
// worker cannot be started.
[[nodiscard]] LaunchResult launch(const LaunchOptions& options);

}  // namespace outrigger::tools

// SPDX-License-Identifier: Apache-2.0
// `outrigger run`: starts local workers and looks after them until all have ended.
#pragma once

#include <string>
#include <vector>

#include "cores.h"

namespace outrigger::tools {

struct LaunchOptions {
  int workers = 1;
  Cores cores;
  bool bind = true;
  double grace_seconds = 5;
  bool verbose = false;
  std::vector<std::string> program;
};

// Returns the exit code: 0, that of the first worker that failed, or 128 + the signal that ended
// the run.
int launch(const LaunchOptions& options);

}  // namespace outrigger::tools

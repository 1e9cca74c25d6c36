// SPDX-License-Identifier: Apache-2.0
// One attempt of a run: all workers from their start to their end.
#pragma once

#include <string>

#include "launch.h"
#include "signals.h"

namespace outrigger::tools {

struct AttemptPlace {
  std::string run_id;  // the same for all attempts of a run
  int number = 0;      // from 0
};

// Nothing of it runs any more when this returns. Throws as launch() does.
[[nodiscard]] LaunchResult run_attempt(const LaunchOptions& options, const Signals& signals,
                                       const AttemptPlace& place);

}  // namespace outrigger::tools

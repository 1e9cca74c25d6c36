// SPDX-License-Identifier: Apache-2.0
// What is wrong with a machine, and what to do about it.
#pragma once

#include <string>
#include <vector>

#include "machine.h"

namespace outrigger::tools {

struct Finding {
  bool problem;      // Outrigger does not work; else: it works, but slower or with less
  std::string what;  // one line
  std::string remedy;
};

// Nothing for what is well, and for what could not be read.
[[nodiscard]] std::vector<Finding> findings_of(const Json& machine);

}  // namespace outrigger::tools

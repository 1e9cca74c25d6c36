// SPDX-License-Identifier: Apache-2.0
// A machine in words: a line for each part.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "machine.h"

namespace outrigger::tools {

[[nodiscard]] std::vector<std::pair<std::string, std::string>> machine_lines(const Json& machine);

}  // namespace outrigger::tools

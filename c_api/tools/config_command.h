// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace outrigger::tools {

// Prints the effective configuration of `file` ("-": standard input) for `world` ranks, or why it
// is wrong. Returns the exit code.
int check_config(const std::string& file, int world);

}  // namespace outrigger::tools

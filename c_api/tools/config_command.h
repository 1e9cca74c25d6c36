// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace outrigger::tools {

// Every value in effect for `world` ranks, with its origin, as JSON. Throws Fault.
[[nodiscard]] std::string effective_config(const std::string& text, int world);

}  // namespace outrigger::tools

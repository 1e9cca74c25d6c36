// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/comm/communicator.h"

namespace outrigger::comm {

using Lookup = std::function<std::optional<std::string>(const char* name)>;

// read_launch_environment over any source of variables.
[[nodiscard]] Launch read_launch(const Lookup& lookup);

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/config/values.h"

namespace outrigger::config {

// Every key as {"value": …, "origin": "user" | "default" | "derived"}, nested by its path, in the
// order of the key table. A key that the user set and the engine leaves alone has a "note" that
// says why.
[[nodiscard]] std::string effective_json(const Values& values);

}  // namespace outrigger::config

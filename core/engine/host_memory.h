// SPDX-License-Identifier: Apache-2.0
// What an engine's host memory is made of, as the system says it.
#pragma once

#include <string>

#include "core/engine/declared.h"

namespace outrigger::engine {

// JSON; see otr_engine_host_memory. Any thread.
[[nodiscard]] std::string host_memory(const Declared& declared);

}  // namespace outrigger::engine

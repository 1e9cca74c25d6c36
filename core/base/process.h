// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

namespace outrigger {

// getpid() at the price of a load: also right in a forked child, where the shared memory is not
// mapped.
[[nodiscard]] pid_t current_process();

// For texts: "an unknown host" where there is no name.
[[nodiscard]] std::string host_name();

}  // namespace outrigger

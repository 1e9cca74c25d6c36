// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace outrigger {

// getpid() at the price of a load: also right in a forked child, where the shared memory is not
// mapped.
[[nodiscard]] pid_t current_process();

}  // namespace outrigger

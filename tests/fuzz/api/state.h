// SPDX-License-Identifier: Apache-2.0
// What can be seen of a rank's engines without a collective call: a failed local call leaves it.
#pragma once

#include <string>

#include "tests/fuzz/api/rank.h"

namespace otr_fuzz {

// One line an engine. Empty where background work or a device failed meanwhile, which changes
// what is seen.
[[nodiscard]] std::string seen(Rank& rank);

// What a process holds from the system: descriptors, threads, shared mappings.
struct Holdings {
  size_t descriptors = 0, threads = 0, mappings = 0;
};
[[nodiscard]] Holdings holdings();

// The system gives a thread's entry back a moment after the thread was joined.
void expect_back_to(const Holdings& before);

}  // namespace otr_fuzz

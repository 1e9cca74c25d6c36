// SPDX-License-Identifier: Apache-2.0
// Numbers that tell one group of ranks from all others, of this job and of any other.
#pragma once

#include <cstdint>

namespace outrigger::comm {

// By chance; never 0.
[[nodiscard]] uint64_t new_identity();
// Of what is made of a group, as so many-th; the same wherever it is asked for.
[[nodiscard]] uint64_t child_of(uint64_t identity, uint64_t number, uint64_t salt = 0);

}  // namespace outrigger::comm

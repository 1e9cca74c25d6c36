// SPDX-License-Identifier: Apache-2.0
#include "core/comm/identity.h"

#include <xxhash.h>

#include <array>
#include <random>

namespace outrigger::comm {

uint64_t new_identity() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

uint64_t child_of(uint64_t identity, uint64_t number, uint64_t salt) {
  const std::array<uint64_t, 3> parts{identity, number, salt};
  return XXH3_64bits(parts.data(), sizeof parts) | 1;
}

}  // namespace outrigger::comm

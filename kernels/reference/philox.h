// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: a counter-based random function (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). Because a number depends on (key, element, step) only,
// stochastic rounding does not depend on how the elements are cut over ranks, threads or vectors.
#pragma once

#include "kernels/reference/formats.h"

namespace outrigger::kernels::reference {

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

struct PhiloxBlock {
  uint32_t x[4];
};

OTR_ELEMENTWISE PhiloxBlock philox(PhiloxBlock counter, uint64_t key) {
  auto [x0, x1, x2, x3] = counter.x;
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * x0;
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * x2;
    x0 = static_cast<uint32_t>(product1 >> 32) ^ x1 ^ key0;
    x1 = static_cast<uint32_t>(product1);
    x2 = static_cast<uint32_t>(product0 >> 32) ^ x3 ^ key1;
    x3 = static_cast<uint32_t>(product0);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return {{x0, x1, x2, x3}};
}

// One block serves eight elements, 16 bits each, low half before high half.
inline constexpr int64_t kElementsPerBlock = 8;

OTR_ELEMENTWISE PhiloxBlock philox_for(uint64_t key, uint64_t element, uint64_t step) {
  const uint64_t c = element / kElementsPerBlock;
  return philox({{static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32),
                  static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)}},
                key);
}

OTR_ELEMENTWISE uint16_t random16(uint64_t key, uint64_t element, uint64_t step) {
  const uint32_t word = philox_for(key, element, step).x[(element / 2) % 4];
  return static_cast<uint16_t>(element % 2 == 0 ? word : word >> 16);
}

}  // namespace outrigger::kernels::reference

// SPDX-License-Identifier: Apache-2.0
// Philox4x32: a counter-based random function (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011), of 7 rounds, the fewest with which it passes BigCrush
// there. Because a number depends on (key, element, step) only,
// stochastic rounding does not depend on how the elements are cut over ranks, threads or vectors.
#pragma once

#include "kernels/reference/formats.h"

namespace outrigger::kernels::reference {

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 7;

struct PhiloxBlock {
  uint32_t x[4];
};

OTR_ELEMENTWISE PhiloxBlock philox(PhiloxBlock counter, uint64_t key, int rounds = kPhiloxRounds) {
  auto [x0, x1, x2, x3] = counter.x;
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < rounds; ++round) {
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

// A leaf of 256 elements has 128 numbers of 16 bits, of 16 blocks: number n is the low (n even) or
// high half of word n / 32 of block n / 2 mod 16, so a vector of blocks is stored word by word.
//
// Elements n and n + 128 and their three draws have number n times odd constants: each of the six
// takes every value once as the first does; any two of them, and the three of an element, fill
// their square and cube nearly as evenly as 2^16 points can (the shortest vector of the dual
// lattice is 203 long in the worst pair, 43 and more for the three).
inline constexpr int64_t kNumbers = kLeaf / 2, kBlocksPerLeaf = kNumbers / 8;
OTR_ELEMENTWISE uint16_t draw_factor(bool second_half, Draw draw) {
  switch (draw) {
    case Draw::exp_avg:
      return second_half ? 0x972d : 0x43f9;
    case Draw::exp_avg_sq:
      return second_half ? 0x403b : 0x3261;
    default:  // weight
      return second_half ? 0xac29 : 1;
  }
}

OTR_ELEMENTWISE uint16_t random16(uint64_t key, uint64_t element, uint64_t step, Draw draw) {
  const uint64_t n = element % kNumbers;
  const bool second_half = element / kNumbers % 2 != 0;
  const uint64_t c = element / kLeaf * kBlocksPerLeaf + n / 2 % kBlocksPerLeaf;
  const PhiloxBlock block =
      philox({{static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32),
               static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)}},
             key);
  const uint32_t word = block.x[n / 32];
  const uint32_t number = n % 2 == 0 ? word & 0xffff : word >> 16;
  return static_cast<uint16_t>(number * draw_factor(second_half, draw));
}

}  // namespace outrigger::kernels::reference

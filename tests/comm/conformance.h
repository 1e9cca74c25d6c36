// SPDX-License-Identifier: Apache-2.0
// What every provider must do when nothing goes wrong: the providers, and data to tell them by.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/comm/ranks.h"

namespace outrigger::comm::test {

inline const auto kProviders = testing::Values(
    Ranks{Provider::self, 1}, Ranks{Provider::threads, 1}, Ranks{Provider::threads, 2},
    Ranks{Provider::threads, 3}, Ranks{Provider::threads, 4}, Ranks{Provider::threads, 5},
    Ranks{Provider::shm, 1}, Ranks{Provider::shm, 2}, Ranks{Provider::shm, 3},
    Ranks{Provider::shm, 4}, Ranks{Provider::shm, 3, 30, LivenessSource::locks},
    Ranks{Provider::custom, 1}, Ranks{Provider::custom, 3}, Ranks{Provider::gather_only, 3},
    Ranks{Provider::hierarchical, 2}, Ranks{Provider::hierarchical, 4},
    Ranks{Provider::hierarchical, 6}, Ranks{Provider::hierarchical_threads, 4});

// Nothing, a byte, odd, one chunk of staging exactly and around it, several chunks.
inline constexpr size_t kSizes[] = {0, 1, 7, 4096, 131071, 131072, 131073, 262144, 262145, 1000003};

// Of what fills a vector just made, and of functions it calls: thread sanitizer has seen the zeros
// written there, and its look at each byte again would take most of the tests' time.
#define OTR_PRIVATE_BYTES __attribute__((no_sanitize("thread")))

// A byte that depends on who wrote it and where.
OTR_PRIVATE_BYTES inline std::byte pattern(int32_t rank, size_t i, uint64_t salt) {
  return static_cast<std::byte>((static_cast<size_t>(rank) * 97 + i * 31 + (i >> 8) + salt * 13) &
                                0xff);
}

OTR_PRIVATE_BYTES inline void fill(std::byte* data, int32_t rank, size_t n, uint64_t salt) {
  for (size_t i = 0; i < n; i++) data[i] = pattern(rank, i, salt);
}

inline std::vector<std::byte> filled(int32_t rank, size_t n, uint64_t salt) {
  std::vector<std::byte> data(n);
  fill(data.data(), rank, n, salt);
  return data;
}

}  // namespace outrigger::comm::test

// SPDX-License-Identifier: Apache-2.0
// What every provider must do when nothing goes wrong: the providers, and data to tell them by.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/comm/ranks.h"

namespace outrigger::comm::test {

// Under mpirun, where OTR_TEST_MPI says so, its ranks alone.
inline std::vector<Ranks> providers() {
  if (const int32_t world = mpi_world(); world > 0) {
    std::vector<Ranks> over_mpi{{Provider::mpi, world}};
    if (world % 2 == 0) over_mpi.push_back({Provider::hierarchical_mpi, world});
    return over_mpi;
  }
  return {{Provider::self, 1},
          {Provider::threads, 1},
          {Provider::threads, 2},
          {Provider::threads, 3},
          {Provider::threads, 4},
          {Provider::threads, 5},
          {Provider::shm, 1},
          {Provider::shm, 2},
          {Provider::shm, 3},
          {Provider::shm, 4},
          {Provider::shm, 3, 30, LivenessSource::locks},
          {Provider::custom, 1},
          {Provider::custom, 3},
          {Provider::gather_only, 3},
          {Provider::transport, 1},
          {Provider::transport, 3},
          {Provider::hierarchical, 2},
          {Provider::hierarchical, 4},
          {Provider::hierarchical, 6},
          {Provider::hierarchical_threads, 4}};
}

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

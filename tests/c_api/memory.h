// SPDX-License-Identifier: Apache-2.0
// What an engine holds, and what it was said to need.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support.h"

namespace otr_test {

inline std::vector<otr_memory_entry> entries_of(
    const std::function<int32_t(otr_memory_entry*, size_t*)>& ask) {
  size_t count = 0;
  EXPECT_OK(ask(nullptr, &count));
  std::vector<otr_memory_entry> entries(count);
  entries[0].struct_size = sizeof entries[0];
  EXPECT_OK(ask(entries.data(), &count));
  EXPECT_EQ(count, entries.size());
  return entries;
}
inline std::vector<otr_memory_entry> estimate(const otr_engine* engine,
                                              const otr_estimate_options& options) {
  return entries_of([&](otr_memory_entry* entries, size_t* count) {
    return otr_engine_estimate(engine, &options, entries, count);
  });
}
inline std::vector<otr_memory_entry> ledger(const otr_engine* engine) {
  return entries_of([&](otr_memory_entry* entries, size_t* count) {
    return otr_engine_memory(engine, entries, count);
  });
}
inline otr_estimate_options options_for(int32_t world, int32_t rank) {
  otr_estimate_options options;
  EXPECT_OK(otr_estimate_options_init(&options, sizeof options));
  options.world_size = world;
  options.rank = rank;
  return options;
}

// To the byte. what: for texts.
inline void expect_equal(const std::vector<otr_memory_entry>& expected,
                         const std::vector<otr_memory_entry>& got, bool peaks,
                         const std::string& what) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_STREQ(expected[i].purpose, got[i].purpose);
    EXPECT_EQ(expected[i].resident_bytes, got[i].resident_bytes) << got[i].purpose << what;
    if (!peaks) continue;
    EXPECT_EQ(expected[i].peak_bytes, got[i].peak_bytes) << "peak of " << got[i].purpose << what;
  }
}

// Commits an engine that is declared: it holds what was estimated.
inline void commit_as_estimated(Engine& engine, const otr_estimate_options& options,
                                const std::string& what = "") {
  const auto expected = estimate(engine.get(), options);
  engine.commit();
  expect_equal(expected, ledger(engine.get()), false, what);
}

}  // namespace otr_test

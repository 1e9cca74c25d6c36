// SPDX-License-Identifier: Apache-2.0
#include "core/threads/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace outrigger {
namespace {

class WorkersTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, WorkersTest, testing::Values(1, 2, 5));

TEST_P(WorkersTest, RunsEachTaskOnceOnAWorkerOfItsOwnNumber) {
  Workers workers(GetParam());
  EXPECT_EQ(workers.size(), GetParam());
  std::vector<std::atomic<int>> runs(1000);
  std::atomic<bool> in_range{true};
  workers.run(1000, [&](int64_t i, int32_t worker) {
    ++runs[static_cast<size_t>(i)];
    if (worker < 0 || worker >= workers.size()) in_range = false;
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_TRUE(in_range);
}

TEST_P(WorkersTest, AnExceptionReachesTheCallerAndTheNextRunWorks) {
  Workers workers(GetParam());
  for (int round = 0; round < 20; ++round) {
    try {
      workers.run(64, [](int64_t i, int32_t) {
        if (i % 8 == 3) throw std::runtime_error("task");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()), "task");
    }
    std::atomic<int64_t> sum{0};
    workers.run(10, [&](int64_t i, int32_t) { sum += i; });
    EXPECT_EQ(sum, 45);
  }
}

}  // namespace
}  // namespace outrigger

// SPDX-License-Identifier: Apache-2.0
#include "core/threads/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
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

// As many tasks as workers, none of which ends before all have begun: each worker has its own.
TEST_P(WorkersTest, AWorkerBeginsWithItsOwnShare) {
  Workers workers(GetParam());
  for (int run = 0; run < 20; ++run) {
    std::vector<int32_t> worker_of(static_cast<size_t>(workers.size()), -1);
    std::atomic<int32_t> begun{0};
    workers.run(workers.size(), [&](int64_t i, int32_t worker) {
      worker_of[static_cast<size_t>(i)] = worker;
      ++begun;
      while (begun < workers.size()) std::this_thread::yield();
    });
    for (int32_t i = 0; i < workers.size(); ++i) EXPECT_EQ(worker_of[static_cast<size_t>(i)], i);
  }
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

// SPDX-License-Identifier: Apache-2.0
#include "core/threads/workers.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace outrigger {
namespace {

// The cores that the calling thread may use.
int cores_here() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

// Of each worker of a pool: how many cores it may use.
std::vector<int> cores_of_a_pool(int threads) {
  Workers workers(threads);
  std::vector<int> cores(static_cast<size_t>(threads), -1);
  std::atomic<int> begun{0};
  workers.run(threads, [&](int64_t, int32_t worker) {
    cores[static_cast<size_t>(worker)] = cores_here();
    ++begun;
    while (begun < threads) std::this_thread::yield();
  });
  return cores;
}

TEST(WorkerCores, AreOneForEachThreadWhereTheProcessHasThemForItself) {
  const int all = cores_here();
  if (all < 2) GTEST_SKIP() << "this process has one core";
  const std::vector<int> free(static_cast<size_t>(all), all);
  EXPECT_EQ(cores_of_a_pool(all), free) << "others may use these cores";
  ASSERT_EQ(setenv("OTR_CORES_BOUND", "1", 1), 0);
  std::vector<int> bound(static_cast<size_t>(all), 1);
  bound[0] = all;  // the caller's thread
  EXPECT_EQ(cores_of_a_pool(all), bound);
  EXPECT_EQ(cores_of_a_pool(all + 1), std::vector<int>(static_cast<size_t>(all) + 1, all));
  ASSERT_EQ(unsetenv("OTR_CORES_BOUND"), 0);
}

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

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

#include "core/device/host.h"
#include "kernels/kernels.h"

namespace outrigger {
namespace {

cpu_set_t cores_here() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

// Of each thread of a pool, the caller's left out, the cores that it may use.
std::vector<cpu_set_t> cores_of_a_pool(int threads) {
  Workers workers(threads);
  std::vector<cpu_set_t> cores(static_cast<size_t>(threads));
  std::atomic<int> begun{0};
  workers.run(threads, [&](int64_t, int32_t worker) {
    cores[static_cast<size_t>(worker)] = cores_here();
    ++begun;
    while (begun < threads) std::this_thread::yield();
  });
  cores.erase(cores.begin());
  return cores;
}

// The test's thread keeps to one core while a pool is made and used, and may go anywhere after.
TEST(WorkerCores, KeepOffTheCallersCore) {
  const cpu_set_t all = cores_here();
  const int count = CPU_COUNT(&all);
  if (count < 2) GTEST_SKIP() << "this process has one core";
  const int before = sched_getcpu();
  const std::vector<cpu_set_t> pool = cores_of_a_pool(2);
  if (sched_getcpu() == before) {  // it has not moved in between, as far as that shows
    EXPECT_FALSE(CPU_ISSET(before, &pool[0]));
  }
  EXPECT_EQ(CPU_COUNT(&pool[0]), count - 1);
  // More threads than cores: anywhere.
  for (const cpu_set_t& set : cores_of_a_pool(count + 1)) EXPECT_EQ(CPU_COUNT(&set), count);
}

TEST(WorkerCores, AreOneForEachThreadWhereTheProcessHasThemForItself) {
  const cpu_set_t all = cores_here();
  const int count = CPU_COUNT(&all);
  if (count < 2) GTEST_SKIP() << "this process has one core";
  ASSERT_EQ(setenv("OTR_CORES_BOUND", "1", 1), 0);
  cpu_set_t used;
  CPU_ZERO(&used);
  for (const cpu_set_t& set : cores_of_a_pool(count)) {
    EXPECT_EQ(CPU_COUNT(&set), 1);
    CPU_OR(&used, &used, &set);
  }
  EXPECT_EQ(CPU_COUNT(&used), count - 1);
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

// What the workers share out has the bits of one call, around the counts at which they are woken.
TEST_P(WorkersTest, TheHostAddsConvertsAndMeasuresAsOneCallDoes) {
  using kernels::Format;
  Workers workers(GetParam());
  device::Host host(&workers);
  for (const int64_t count : {1, 65537, 262144, 262145, 1000003}) {
    const auto n = static_cast<size_t>(count);
    std::vector<float> from(n), sum(n), expected(n);
    std::vector<uint16_t> narrow(n), expected_narrow(n);
    for (size_t i = 0; i < n; ++i) {
      from[i] = static_cast<float>(i % 1013) / 7 - 50;
      sum[i] = expected[i] = static_cast<float>(i % 509) / 3;
    }
    host.add(sum.data(), Format::float32, from.data(), Format::float32, count, 0);
    kernels::add(expected.data(), Format::float32, from.data(), Format::float32, count);
    EXPECT_EQ(sum, expected) << count;
    host.convert(narrow.data(), Format::bfloat16, sum.data(), Format::float32, 0.5F, count, 0);
    kernels::scale(expected_narrow.data(), Format::bfloat16, sum.data(), Format::float32, 0.5F,
                   count);
    EXPECT_EQ(narrow, expected_narrow) << count;
    kernels::NormSum whole;
    kernels::sum_of_squares(whole, sum.data(), Format::float32, count, 0);
    EXPECT_EQ(host.norm(sum.data(), Format::float32, count, 0).limbs, whole.limbs);
  }
}

}  // namespace
}  // namespace outrigger

// SPDX-License-Identifier: Apache-2.0
#include "core/observe/quick_clock.h"

#include <gtest/gtest.h>

#include <chrono>

#include "core/observe/timeline.h"

namespace outrigger::observe {
namespace {

int64_t system_time = 0;
int looks = 0;
int64_t look() {
  ++looks;
  return system_time;
}

class QuickClockTest : public testing::Test {
 protected:
  QuickClockTest() { system_time = 5'000'000'000, looks = 0; }
  // So many nanoseconds later, of a counter that makes so many ticks in one.
  int64_t after(int64_t nanoseconds, double rate) {
    system_time += nanoseconds;
    ticks_ += static_cast<uint64_t>(static_cast<double>(nanoseconds) * rate);
    return clock_.at(ticks_, look);
  }
  QuickClock clock_;
  uint64_t ticks_ = uint64_t{1} << 60;
};

TEST_F(QuickClockTest, LooksOnceInAMillisecondOfAnEvenCounter) {
  for (int i = 0; i < 100000; ++i)
    EXPECT_NEAR(static_cast<double>(after(100, 3) - system_time), 0, 2);  // 10 ms
  EXPECT_GT(looks, 9);
  EXPECT_LT(looks, 250);  // 200 of them before it knows the rate
}

TEST_F(QuickClockTest, LooksEachTimeWhereCallsAreRare) {
  for (int i = 0; i < 50; ++i) EXPECT_EQ(after(2'000'000, 3), system_time);
  EXPECT_EQ(looks, 50);
}

TEST_F(QuickClockTest, IsWithinMillisecondsOfACounterWhoseRateChanges) {
  int64_t before = 0;
  for (int i = 0; i < 100000; ++i) {
    const int64_t time = after(100, i / 7919 % 2 == 0 ? 3 : 1);
    EXPECT_NEAR(static_cast<double>(time - system_time), 0,
                2'100'000);  // a millisecond's ticks, which take three
    EXPECT_GE(time, before);
    before = time;
  }
}

TEST_F(QuickClockTest, GoesOnWhereTheCounterOfAnotherProcessorIsElsewhere) {
  int64_t before = 0;
  for (int i = 0; i < 3000; ++i) {
    if (i % 500 == 250) ticks_ -= 1'000'000'000;
    if (i % 500 == 499) ticks_ += 1'000'000'000;
    const int64_t time = after(1000, 3);
    EXPECT_NEAR(static_cast<double>(time - system_time), 0, 1'000'000) << i;
    EXPECT_GE(time, before) << i;
    before = time;
  }
}

TEST(QuickClock, IsTheSystemsClock) {
  QuickClock clock;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < end) {
    const int64_t before = now(), between = clock.now(), after = now();
    // A machine that stops this thread between two readings widens the bounds by itself.
    EXPECT_GE(between, before - 1'000'000);
    EXPECT_LE(between, after + 1'000'000);
  }
}

}  // namespace
}  // namespace outrigger::observe

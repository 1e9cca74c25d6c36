// SPDX-License-Identifier: Apache-2.0
// in_lanes: order, how far it goes ahead, failures of both sides.
#include "core/base/lanes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace outrigger::test {
namespace {

constexpr int64_t kLanes = 3;

TEST(Lanes, GivesResultsInOrderAndGoesNoFurtherAheadThanItsLanes) {
  for (const int64_t count : {0, 1, 2, 3, 50}) {
    std::vector<int64_t> made(kLanes, -1), taken;
    std::atomic<int64_t> untaken{0};
    in_lanes(
        kLanes, count, "a test",
        [&](int64_t lane, int64_t i) {
          EXPECT_LE(++untaken, kLanes);
          if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          made[static_cast<size_t>(lane)] = i;
        },
        [&](int64_t lane, int64_t i) {
          EXPECT_EQ(made[static_cast<size_t>(lane)], i);
          taken.push_back(i);
          --untaken;
        });
    ASSERT_EQ(taken.size(), static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(taken[static_cast<size_t>(i)], i);
  }
}

// All that is under way on the lanes ends before the failure is seen.
TEST(Lanes, FailsWithWhatEitherSideThrows) {
  for (const bool maker : {true, false}) {
    std::atomic<int> under_way{0};
    int64_t taken = 0;
    const auto fail_at_5 = [](bool fails, int64_t i) {
      if (fails && i == 5) throw std::runtime_error("number 5");
    };
    std::string text;
    try {
      in_lanes(
          kLanes, 20, "a test",
          [&](int64_t, int64_t i) {
            ++under_way;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            --under_way;
            fail_at_5(maker, i);
          },
          [&](int64_t, int64_t i) {
            fail_at_5(!maker, i);
            ++taken;
          });
    } catch (const std::runtime_error& error) {
      text = error.what();
    }
    EXPECT_EQ(text, "number 5");
    EXPECT_EQ(taken, 5);
    EXPECT_EQ(under_way, 0);
  }
}

}  // namespace
}  // namespace outrigger::test

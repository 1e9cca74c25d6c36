// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/base/serial_worker.h"

namespace outrigger::test {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60000}, kShort{20};

// A door that a job waits at.
class Door {
 public:
  void open() { open_.store(true); }
  void pass() const {
    while (!open_.load()) std::this_thread::sleep_for(milliseconds(1));
  }

 private:
  std::atomic<bool> open_{false};
};

TEST(SerialWorker, RunsJobsOneAfterTheOtherInTheirOrder) {
  SerialWorker worker("a test");
  std::vector<int> ran;  // the worker's until it was waited for
  uint64_t last = 0;
  for (int i = 0; i < 1000; ++i) last = worker.add([&ran, i] { ran.push_back(i); });
  EXPECT_EQ(last, 1000U);
  EXPECT_EQ(worker.added(), 1000U);
  ASSERT_TRUE(worker.wait_for(last, kLong));
  ASSERT_EQ(ran.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
  EXPECT_TRUE(worker.wait_for(0, kShort));
}

TEST(SerialWorker, AWaitEndsWithItsJobOrItsTime) {
  SerialWorker worker("a test");
  Door door;
  const uint64_t first = worker.add([] {}), second = worker.add([&] { door.pass(); });
  EXPECT_TRUE(worker.wait_for(first, kLong));
  EXPECT_FALSE(worker.wait_for(second, kShort));
  door.open();
  EXPECT_TRUE(worker.wait_for(second, kLong));
}

// Jobs that nobody waits for wake nobody; each of those who wait is woken by its own.
TEST(SerialWorker, EveryWaitEndsWithItsOwnJob) {
  Door doors[4];
  SerialWorker worker("a test");
  for (Door& door : doors) worker.add([&door] { door.pass(); });
  std::atomic<int> ended{0};
  std::vector<std::thread> waiting;
  for (const uint64_t number : {3, 1, 3}) {
    waiting.emplace_back([&, number] {
      if (worker.wait_for(number, kLong)) ++ended;
    });
    std::this_thread::sleep_for(kShort);
  }
  const auto ends = [&](int count) {
    const auto until = std::chrono::steady_clock::now() + milliseconds(5000);
    while (ended < count && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::this_thread::sleep_for(kShort);
    EXPECT_EQ(ended, count);
  };
  doors[0].open();
  ends(1);
  doors[1].open();
  ends(1);
  doors[2].open();
  ends(3);
  doors[3].open();
  for (std::thread& thread : waiting) thread.join();
}

TEST(SerialWorker, AFailureEndsTheRow) {
  SerialWorker worker("a test");
  std::atomic<bool> ran{false};
  const uint64_t before = worker.add([] {});
  const uint64_t failing = worker.add([] { throw std::runtime_error("no more"); });
  const uint64_t after = worker.add([&] { ran = true; });
  EXPECT_THROW((void)worker.wait_for(failing, kLong), std::runtime_error);
  EXPECT_TRUE(worker.wait_for(before, kLong));  // what ran before it has run
  EXPECT_THROW((void)worker.wait_for(after, kShort), std::runtime_error);
  EXPECT_THROW(worker.check(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(SerialWorker, StopDropsWhatHasNotBegun) {
  SerialWorker worker("a test");
  Door begun, door;
  std::atomic<bool> ended{false}, ran{false};
  worker.add([&] {
    begun.open();
    door.pass();
    ended = true;
  });
  worker.add([&] { ran = true; });
  begun.pass();
  worker.stop([&] { door.open(); });
  EXPECT_TRUE(ended);
  const uint64_t late = worker.add([&] { ran = true; });
  EXPECT_FALSE(worker.wait_for(late, kShort));
  worker.stop();
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace outrigger::test

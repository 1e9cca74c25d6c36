// SPDX-License-Identifier: Apache-2.0
// Clocks that are apart by a known time.
#include "core/comm/clocks.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/comm/ranks.h"

namespace outrigger::comm::test {
namespace {

using std::chrono::nanoseconds;

int64_t true_time() {
  return nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Clocks : public testing::TestWithParam<Ranks> {};

TEST_P(Clocks, AreComparedToWithinTheirBound) {
  for (const int64_t apart : {int64_t{0}, int64_t{5'000'000'000}, int64_t{-7'123'456}}) {
    run_all_well(GetParam(), [&](Communicator& c) {
      const int64_t shift = apart * c.rank();
      const ClockOffset found = compare_clocks(c, [&] { return true_time() + shift; });
      const int64_t wrong = std::abs(found.nanoseconds - shift);
      require(wrong <= found.bound,
              outrigger::format_text("rank {}: {} instead of {}, and the bound is {}", c.rank(),
                                     found.nanoseconds, shift, found.bound));
      require(c.rank() != 0 || (found.nanoseconds == 0 && found.bound == 0), "rank 0's own");
      require(c.rank() == 0 || found.bound > 0, "a bound of nothing");
      require(found.bound < 1'000'000'000, "a bound of no use");
    });
  }
}

// Every route but rank 0's is slow: the bound grows, and holds.
TEST(ClocksOfARankThatIsLate, HaveALargerBound) {
  run_all_well({Provider::threads, 2}, [](Communicator& c) {
    int calls = 0;
    const ClockOffset found = compare_clocks(c, [&] {
      const int64_t now = true_time();
      // Between the moment that rank 1 tells and the call that tells it.
      if (c.rank() == 1 && calls++ % 2 == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      return now;
    });
    if (c.rank() == 0) return;
    require(std::abs(found.nanoseconds) <= found.bound, "the bound holds");
    require(found.bound >= 2'000'000, outrigger::format_text("bound {}", found.bound));
  });
}

INSTANTIATE_TEST_SUITE_P(Providers, Clocks,
                         testing::Values(Ranks{Provider::self, 1}, Ranks{Provider::threads, 3},
                                         Ranks{Provider::custom, 2}, Ranks{Provider::transport, 3},
                                         Ranks{Provider::hierarchical, 4}),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace outrigger::comm::test

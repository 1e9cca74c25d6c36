// SPDX-License-Identifier: Apache-2.0
#include "core/comm/clocks.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

namespace outrigger::comm {

ClockOffset compare_clocks(Group& group, const std::function<int64_t()>& clock) {
  constexpr int kRounds = 16;
  struct Times {
    int64_t begun, ended_before;  // this round's, and the last round's
  };
  std::vector<Times> all(static_cast<size_t>(group.size()));
  const auto mine = static_cast<size_t>(group.rank());
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  int64_t ended = 0, before = 0;  // `before`: when this rank began the last round
  for (int round = 0; round <= kRounds; ++round) {
    const Times times{clock(), ended};
    group.all_gather(std::as_bytes(std::span(&times, 1)), std::as_writable_bytes(std::span(all)),
                     "compare clocks");
    ended = clock();
    most = std::min(most, ended - all[0].begun);
    // Rank 0 tells with each round when it had all values of the one before.
    if (round > 0) least = std::max(least, before - all[0].ended_before);
    before = all[mine].begun;
  }
  if (group.rank() == 0) return {};
  const int64_t bound = (most - least + 1) / 2;
  return {least + (most - least) / 2, bound};
}

}  // namespace outrigger::comm

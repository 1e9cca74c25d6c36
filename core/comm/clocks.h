// SPDX-License-Identifier: Apache-2.0
// How far the clocks of ranks are apart.
#pragma once

#include <cstdint>
#include <functional>

#include "core/comm/group.h"

namespace outrigger::comm {

// How much this rank's clock shows more than rank 0's; wrong by at most `bound`.
struct ClockOffset {
  int64_t nanoseconds = 0, bound = 0;
};

// A value that a rank gives to a gather at one time of its clock has arrived at all others when
// their gathers end, so each round limits the offset from both sides, whatever the routes take; of
// all rounds the closest limits count. clock: in nanoseconds. Collective.
[[nodiscard]] ClockOffset compare_clocks(Group& group, const std::function<int64_t()>& clock);

}  // namespace outrigger::comm

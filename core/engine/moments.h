// SPDX-License-Identifier: Apache-2.0
// Which snapshot a group of ranks goes back to, from what each of them has.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/rank_copies.h"

namespace outrigger::engine {

// One snapshot of one rank: of which ranks it has parts.
struct HeldMoment {
  RankCopies::Moment moment;
  std::array<int32_t, RankCopies::kMostReplicas + 1> ranks;
  int32_t count = 0;
};

// The latest moment of which every rank's part is somewhere: who has it.
struct ChosenMoment {
  RankCopies::Moment moment;
  std::vector<int32_t> holders;  // by rank: itself where it can
};

// records: RankCopies::kMostGiven of each rank, in rank order. Throws OTR_E_NOT_FOUND.
[[nodiscard]] ChosenMoment choose_moment(std::span<const HeldMoment> records, int32_t world,
                                         const char* call);

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
#include "core/engine/moments.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"

namespace outrigger::engine {

ChosenMoment choose_moment(std::span<const HeldMoment> records, int32_t world, const char* call) {
  std::map<uint64_t, ChosenMoment> moments;
  int32_t other_world = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const HeldMoment& record = records[i];
    if (record.moment.id == 0) continue;
    if (record.moment.world != world) {
      other_world = record.moment.world;
      continue;
    }
    ChosenMoment& c =
        moments
            .try_emplace(
                record.moment.id,
                ChosenMoment{record.moment, std::vector<int32_t>(static_cast<size_t>(world), -1)})
            .first->second;
    const auto holder = static_cast<int32_t>(i / RankCopies::kMostGiven);
    for (int32_t k = 0; k < record.count; ++k) {
      const int32_t rank = record.ranks.at(static_cast<size_t>(k));
      int32_t& known = c.holders.at(static_cast<size_t>(rank));
      if (known < 0 || rank == holder) known = holder;
    }
  }
  const ChosenMoment* best = nullptr;
  int32_t lacking = -1;
  for (const auto& [id, chosen] : moments) {
    const auto hole = std::ranges::find(chosen.holders, -1);
    if (hole != chosen.holders.end()) {
      lacking = static_cast<int32_t>(hole - chosen.holders.begin());
      continue;
    }
    if (best == nullptr || chosen.moment.micro_steps > best->moment.micro_steps) best = &chosen;
  }
  if (best != nullptr) return *best;
  if (lacking >= 0) {
    fail(OTR_E_NOT_FOUND,
         "{}: no snapshot has every rank's part: that of rank {} is nowhere. Take snapshots with "
         "replicas, or load a checkpoint",
         call, lacking);
  }
  if (other_world > 0) {
    fail(OTR_E_NOT_FOUND,
         "{}: the snapshots are of {} ranks, and this group has {}: another number of ranks goes "
         "by way of otr_engine_save and otr_engine_load",
         call, other_world, world);
  }
  fail(OTR_E_NOT_FOUND, "{}: no rank has a snapshot that is not empty", call);
}

}  // namespace outrigger::engine

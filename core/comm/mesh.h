// SPDX-License-Identifier: Apache-2.0
// A communicator of groups of consecutive ranks.
//
//   sum(group) = float32(g_0); += float32(g_1); …   over its ranks, in order
//   sum        = sum(group 0); += sum(group 1); …   in float32, rounded by the accumulator only
//
// What ranks agree on goes over all of them. Windows are those of the ranks of a group. Either each
// group has all slices of what is shared out: a slice's sums of all groups are added by the ranks
// that have it, each a part, and then sent to all of them. Or slices are divided further: what a
// rank adds is its own slice, and the ranks at its place in the groups have the others of that
// place, one behind the other. Published parameters are then cut as in the first case.
#pragma once

#include <cstdint>
#include <memory>

#include "core/comm/communicator.h"

namespace outrigger::comm {

// The ranks of `all` in groups of `shard`, which divides their number; divided: a slice for each
// rank. Throws OTR_E_UNSUPPORTED where `all` has no subgroups. Collective.
[[nodiscard]] std::unique_ptr<Communicator> make_mesh(Communicator& all, int32_t shard,
                                                      bool divided);

}  // namespace outrigger::comm

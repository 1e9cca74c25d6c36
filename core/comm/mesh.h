// SPDX-License-Identifier: Apache-2.0
// A communicator of groups of consecutive ranks, each of which has all slices of what is shared
// out: sharded inside a group, replicated over the groups.
//
//   sum(group) = float32(g_0); += float32(g_1); …   over its ranks, in order
//   sum        = sum(group 0); += sum(group 1); …   in float32, rounded by the accumulator only
//
// What ranks agree on goes over all of them. Windows, gathers and the slices of an exchange are of
// the ranks of a group; a slice's sums of all groups are added by the ranks that have it, each a
// part, and then sent to all of them.
#pragma once

#include <cstdint>
#include <memory>

#include "core/comm/communicator.h"

namespace outrigger::comm {

// The ranks of `all` in groups of `shard`, which divides their number. Throws OTR_E_UNSUPPORTED
// where `all` has no subgroups. Collective.
[[nodiscard]] std::unique_ptr<Communicator> make_mesh(Communicator& all, int32_t shard);

// Elements of a window with the sums of a slice of so many, in parts for so many groups.
[[nodiscard]] int64_t mesh_sums(int64_t slice, int32_t groups);

}  // namespace outrigger::comm

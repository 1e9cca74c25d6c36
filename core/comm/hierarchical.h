// SPDX-License-Identifier: Apache-2.0
// A communicator of two levels: hosts with as many ranks each, whose ranks share memory or have a
// group of their own, and between the hosts a group for each place on them.
//
//   sum(host) = float32(g_0); += float32(g_1); …   over its ranks, in order
//   sum       = sum(host 0);  += sum(host 1);  …   in float32, rounded by the accumulator only
//
// A rank sums, of its host's ranks, the slices that the ranks at its own place on each host own,
// and sends each of them one float32 sum: 4 bytes an element between hosts, however many ranks a
// host has.
#pragma once

#include <memory>

#include "core/comm/communicator.h"

namespace outrigger::comm {

// Of duplicates of the three; rank r of `all` is rank r % host.size() of `host` and rank
// r / host.size() of `across`. Throws OTR_E_ARGUMENT on all ranks where it is not, on one of them.
// After any other failure but OTR_E_OUT_OF_MEMORY, `host` and `across` cannot be used again.
// Collective; interrupted before all ranks have come, it can be called again.
[[nodiscard]] std::unique_ptr<Communicator> make_hierarchical(Communicator& all, Communicator& host,
                                                              Communicator& across);

}  // namespace outrigger::comm

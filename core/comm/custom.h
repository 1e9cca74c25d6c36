// SPDX-License-Identifier: Apache-2.0
// A communicator made of the caller's functions: torch.distributed, MPI, Ray, anything.
//
// The caller moves bytes; everything else is here. Before an operation moves data the ranks compare
// what each is about to call, so a mismatch is an error on all of them instead of a hang or a
// mixture.
#pragma once

#include <memory>

#include "core/comm/communicator.h"
#include "outrigger.h"

namespace outrigger::comm {

// Takes over table.user_data, which table.destroy gives back; where it throws, it does not.
// Collective.
[[nodiscard]] std::unique_ptr<Communicator> make_custom(const otr_comm_table& table);

}  // namespace outrigger::comm

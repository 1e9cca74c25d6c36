// SPDX-License-Identifier: Apache-2.0
// The reducer of a configuration: its order, and how its sums come to a device.
#pragma once

#include <memory>

#include "core/engine/reduce.h"

namespace outrigger::engine {

// Collective. The communicator is the reducer's own.
[[nodiscard]] std::unique_ptr<Reducer> make_reducer(const ReduceContext& context,
                                                    std::unique_ptr<comm::Communicator> comm);

}  // namespace outrigger::engine

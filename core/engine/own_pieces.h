// SPDX-License-Identifier: Apache-2.0
// Where this rank's pieces of the published parameters lie, for who gathers them.
#pragma once

#include "core/engine/gather_pieces.h"
#include "core/engine/state_store.h"

namespace outrigger::engine {

// All outlive it. Under offload the host has what it updates, too: nothing need come down.
[[nodiscard]] Pieces own_pieces(const Published& published, StateStore& states, const Plan& plan);

}  // namespace outrigger::engine

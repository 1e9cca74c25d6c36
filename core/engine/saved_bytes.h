// SPDX-License-Identifier: Apache-2.0
// How many bytes a rank's file of a checkpoint has, before there is anything to save.
#pragma once

#include <cstdint>

#include "core/comm/shape.h"
#include "core/config/config.h"
#include "core/layout/layout.h"

namespace outrigger::engine {

// Of the states' tensors of the rank with this slice.
[[nodiscard]] int64_t bytes_to_save(const layout::Model& model, const layout::Layout& layout,
                                    const config::EngineConfig& config, const comm::Shape& shape);

// Memory for a copy of a file with so many bytes of states, with some of the host's.
[[nodiscard]] int64_t snapshot_room(int64_t states);

}  // namespace outrigger::engine

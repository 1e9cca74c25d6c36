// SPDX-License-Identifier: Apache-2.0
// Where the values of one parameter lie that OTR_VALUE_ names.
#pragma once

#include <functional>

#include "core/engine/engine.h"

namespace outrigger::engine {

// Where a piece lies, in which format, and the factor that turns it into what the host sees.
struct Engine::Location {
  kernels::Format format;
  std::function<std::byte*(const layout::Piece&)> at;
  device::Device* device;
  double factor = 1;
};

}  // namespace outrigger::engine

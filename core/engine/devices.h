// SPDX-License-Identifier: Apache-2.0
// Where an engine's work is done: `front` has the parameters and meets the host's tensors. Sums,
// masters and moments are there, too, or on the host: by the plan.
#pragma once

#include "core/device/device.h"
#include "core/memory/ledger.h"
#include "core/memory/shown.h"

namespace outrigger::engine {

struct Devices {
  device::Device* front;
  device::Device* host;
  memory::Shown* shown;  // what callers see of the host's memory
  [[nodiscard]] device::Device& of(memory::Space space) const {
    return space == memory::Space::host ? *host : *front;
  }
};

}  // namespace outrigger::engine

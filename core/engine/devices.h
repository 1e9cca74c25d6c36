// SPDX-License-Identifier: Apache-2.0
// Where an engine's work is done: `front` has the parameters and meets the host's tensors, `back`
// has accumulators, master and moments. Without offload they are the same object.
#pragma once

#include "core/device/device.h"

namespace outrigger::engine {

struct Devices {
  device::Device* front;
  device::Device* back;
  [[nodiscard]] bool offloaded() const { return front != back; }
};

}  // namespace outrigger::engine

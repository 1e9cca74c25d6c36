// SPDX-License-Identifier: Apache-2.0
// What a configuration asks of the device that would have the states.
#pragma once

#include "core/config/config.h"
#include "core/device/device.h"

namespace outrigger::engine {

// Throws OTR_E_UNSUPPORTED, naming the key, its value and what the device can do instead.
void require_able(const device::Device& device, const config::EngineConfig& config);

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// A window of which each rank has its own block, in a device's memory.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "core/comm/communicator.h"
#include "core/device/device.h"

namespace outrigger::comm {

// Tells somebody of a window's memory, as long as the result lives.
using Announce = std::function<std::shared_ptr<void>(std::span<std::byte>)>;

// On all ranks, or on none. Collective. The device outlives it, and so does what `announce` needs.
[[nodiscard]] std::shared_ptr<Window> create_device_window(Group& group, device::Device& device,
                                                           size_t bytes, std::string_view label,
                                                           const Announce& announce = {});

}  // namespace outrigger::comm

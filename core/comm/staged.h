// SPDX-License-Identifier: Apache-2.0
// A communicator whose windows are a device's memory: what the ranks exchange goes through host
// memory. A provider that moves device memory by itself has no need of it.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/comm/communicator.h"
#include "core/device/device.h"

namespace outrigger::comm {

// Page-locks host memory for the device until the result's end, or does not.
using Lock = std::function<std::shared_ptr<void>(std::span<std::byte>)>;

// staging_bytes: the most that one reduce or all_gather_window spans; with room for several runs of
// all_gather_runs, these overlap: one comes down, one is exchanged, one goes up. received_bytes:
// what of a reduce comes to the device: the slices, or, where the host communicator has two levels,
// the sum of one in float32, which is made on the host by `cpu`. Collective. The devices outlive
// the result.
[[nodiscard]] std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> host,
                                                        device::Device& device, device::Device& cpu,
                                                        const Lock& lock, size_t staging_bytes,
                                                        size_t received_bytes);

}  // namespace outrigger::comm

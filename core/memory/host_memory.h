// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "core/device/host.h"
#include "core/memory/ledger.h"

namespace outrigger::memory {

// Zero-filled. Throws OTR_E_OUT_OF_MEMORY naming the purpose and the bytes. others: to keep apart
// from.
[[nodiscard]] device::HostMemory allocate_host(Purpose purpose, size_t bytes,
                                               std::span<const device::Neighbour> others);

}  // namespace outrigger::memory

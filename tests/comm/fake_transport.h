// SPDX-License-Identifier: Apache-2.0
// A plugin for transports without a library: its ranks are threads of this process. Each operation
// runs on a thread of its own, over a group of threads.
#pragma once

#include "core/device/transport.h"

namespace outrigger::comm::test {

// make_transport is given the address of a rank's communicator of threads, which outlives what is
// made. It takes few bytes at a time, so that large operations go in pieces.
[[nodiscard]] device::TransportPlugin fake_transport();

}  // namespace outrigger::comm::test

// SPDX-License-Identifier: Apache-2.0
// A communicator over a plugin's transport, for ranks on any hosts. The plugin begins operations
// and says when they are over; waiting, deadlines, interrupts, and who is to blame are here.
//
// A rank of the same host that dies is seen by the kernel's word, one of another host by the word
// of the first rank that sees it, or the library's if it knows (ULFM). A host that is lost as a
// whole is silent: the deadline names its ranks.
#pragma once

#include <memory>

#include "core/comm/communicator.h"
#include "core/device/transport.h"

namespace outrigger::comm {

// group: the address of the library's handle; null: all processes. Collective.
[[nodiscard]] std::unique_ptr<Communicator> make_transport(const device::TransportPlugin& plugin,
                                                           const void* group,
                                                           const Settings& settings);

}  // namespace outrigger::comm

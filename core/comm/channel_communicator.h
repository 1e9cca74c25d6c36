// SPDX-License-Identifier: Apache-2.0
// A communicator over a channel. Before an operation moves data the ranks compare what each is
// about to call, so a mismatch is an error on all of them instead of a hang or a mixture.
#pragma once

#include <memory>

#include "core/comm/channel.h"
#include "core/comm/communicator.h"

namespace outrigger::comm {

[[nodiscard]] std::unique_ptr<Communicator> make_over(std::unique_ptr<Channel> channel);

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/channel.h"

namespace outrigger::comm {

void Channel::send(std::span<const std::byte>, int32_t) {
  fail(OTR_E_INTERNAL, "a {} channel sends nothing between two ranks", provider());
}

void Channel::receive(std::span<std::byte>, int32_t) {
  fail(OTR_E_INTERNAL, "a {} channel receives nothing from one rank", provider());
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/comm/communicator.h"

namespace outrigger::comm {

enum class LivenessSource : uint8_t {
  best,   // pidfds; locks where a rank's kernel has none
  locks,  // so that the second way can be tested on any kernel
};

[[nodiscard]] std::unique_ptr<Communicator> make_shm(int32_t rank, int32_t world,
                                                     std::string_view job, const Settings& settings,
                                                     LivenessSource source);

}  // namespace outrigger::comm

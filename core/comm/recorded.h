// SPDX-License-Identifier: Apache-2.0
// A communicator of one level whose operations a flight recorder keeps; so are those of what is
// made from it.
#pragma once

#include <memory>
#include <string_view>

#include "core/comm/communicator.h"
#include "core/observe/flight_recorder.h"

namespace outrigger::comm {

// recorder: null where nothing is kept; then it is the communicator as it is.
[[nodiscard]] std::unique_ptr<Communicator> recorded(
    std::unique_ptr<Communicator> made, std::shared_ptr<observe::FlightRecorder> recorder,
    std::string_view name);

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
// The communicator of ranks that a launcher started.
#pragma once

#include <memory>
#include <string>

#include "core/comm/communicator.h"
#include "core/observe/flight_recorder.h"

namespace outrigger::comm {

// Of one rank: itself; on one host: shared memory; on several: MPI, and where every host has as
// many consecutive ranks, shared memory on each host and MPI between them. recorder: as recorded()
// takes it. Collective.
[[nodiscard]] std::unique_ptr<Communicator> make_launched(
    const Launch& launch, const std::string& job, const Settings& settings,
    const std::shared_ptr<observe::FlightRecorder>& recorder);

}  // namespace outrigger::comm

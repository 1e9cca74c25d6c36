// SPDX-License-Identifier: Apache-2.0
// What one rank's communicators of a job have in common.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/comm/communicator.h"
#include "core/comm/control.h"
#include "core/comm/failure.h"
#include "core/comm/liveness.h"
#include "core/comm/region.h"
#include "core/comm/region_exchange.h"
#include "core/comm/wait.h"

namespace outrigger::comm {

struct Member {
  // `control` holds the JobBlock and, behind it, the job's first channel.
  Member(int32_t rank, int32_t world, std::string_view provider, const Settings& settings,
         Clock::duration spin, std::shared_ptr<Region> control,
         std::shared_ptr<RegionExchange> exchange, std::unique_ptr<Liveness> liveness);

  const int32_t rank, world;
  const std::string_view provider;
  double timeout;              // changes only before the first channel is handed out
  const Clock::duration spin;  // the longest before sleeping
  const std::shared_ptr<Region> control;
  JobBlock& job;
  FailureBoard failures;
  const std::shared_ptr<RegionExchange> exchange;
  const std::unique_ptr<Liveness> liveness;
  const pid_t process;  // in a forked child the shared memory is not there
};

[[nodiscard]] size_t control_bytes(int32_t world);
// Gives the region its pages and writes what must not be zero. Rank 0, before the others see it.
void initialise_control(Region& control, int32_t world);
// Throws OTR_E_MISMATCH unless rank 0 wrote it with this library's layout for this world.
void check_control(const Region& control, int32_t world);
[[nodiscard]] ChannelBlock& first_channel(const Region& control, int32_t world);

// Throws OTR_E_ARGUMENT.
void check_settings(int32_t rank, int32_t world, const Settings& settings);

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/member.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/comm/identity.h"

namespace outrigger::comm {

static JobBlock& job_of(const Region& control) {
  return *reinterpret_cast<JobBlock*>(control.data());
}

Member::Member(int32_t rank_, int32_t world_, std::string_view provider_, const Settings& settings,
               Clock::duration spin_, std::shared_ptr<Region> control_,
               std::shared_ptr<RegionExchange> exchange_, std::unique_ptr<Liveness> liveness_)
    : rank(rank_),
      world(world_),
      provider(provider_),
      timeout(settings.timeout),
      spin(spin_),
      control(std::move(control_)),
      job(job_of(*control)),
      failures(job, world, rank),
      exchange(std::move(exchange_)),
      liveness(std::move(liveness_)),
      process(current_process()) {
  job.member(rank).process.store(process, std::memory_order_release);
}

size_t control_bytes(int32_t world) { return JobBlock::bytes(world) + ChannelBlock::bytes(world); }

void initialise_control(Region& control, int32_t world) {
  control.populate(0, control.bytes());
  JobBlock& job = job_of(control);
  job.magic = kMagic;
  job.version = kLayoutVersion;
  job.world = world;
  job.identity = new_identity();
}

void check_control(const Region& control, int32_t world) {
  const JobBlock& job = job_of(control);
  if (job.magic != kMagic || job.version != kLayoutVersion || job.world != world) {
    fail(OTR_E_MISMATCH,
         "rank 0's control block has layout {} for {} ranks; this rank has layout {} for {}",
         job.version, job.world, kLayoutVersion, world);
  }
}

ChannelBlock& first_channel(const Region& control, int32_t world) {
  return *reinterpret_cast<ChannelBlock*>(control.data() + JobBlock::bytes(world));
}

void check_settings(int32_t rank, int32_t world, const Settings& settings) {
  if (world < 1 || world > kMaxWorld) {
    fail(OTR_E_ARGUMENT, "world size {} is outside 1..{}, what one host's communicators take",
         world, kMaxWorld);
  }
  if (rank < 0 || rank >= world) {
    fail(OTR_E_ARGUMENT, "rank {} is outside 0..{} (world size {})", rank, world - 1, world);
  }
  if (!(settings.timeout > 0)) {  // also not a number
    fail(OTR_E_ARGUMENT, "timeout {} is not above 0 seconds", settings.timeout);
  }
  if (settings.spin < -1) fail(OTR_E_ARGUMENT, "spin {} is below -1", settings.spin);
}

}  // namespace outrigger::comm

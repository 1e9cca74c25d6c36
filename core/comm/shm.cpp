// SPDX-License-Identifier: Apache-2.0
// shm: processes of one user on one host.
#include "core/comm/shm.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/comm/host.h"
#include "core/comm/packet.h"
#include "core/comm/rendezvous.h"
#include "core/threads/cores.h"

namespace outrigger::comm {
namespace {

// Regions change hands as file descriptors, over the sockets of the rendezvous.
class SocketExchange final : public RegionExchange {
 public:
  explicit SocketExchange(std::vector<UniqueFd> sockets) : sockets_(std::move(sockets)) {}

  std::shared_ptr<Region> make(size_t bytes) override { return Region::make_shared(bytes); }

  void offer(RegionId id, const std::shared_ptr<Region>& region) override {
    Offer offer;
    offer.channel = id.channel;
    offer.operation = id.operation;
    offer.bytes = region->bytes();
    const int fd = region->fd();
    const std::lock_guard lock(mutex_);
    for (const auto& socket : sockets_) {
      // Each offer is taken before the next one on its channel, so there is room; a peer that ended
      // is found out at the step that follows.
      if (socket &&
          send_packet(socket.get(), offer, std::span(&fd, 1)) == PacketResult::would_block) {
        fail(OTR_E_SYSTEM, "the queue of memory offers to a rank is full");
      }
    }
  }

  // Another channel's thread may find our offer, and we theirs: what is not asked for is kept.
  std::shared_ptr<Region> take(RegionId id, size_t bytes) override {
    UniqueFd fd = find(id);
    return fd ? Region::attach(std::move(fd), bytes) : nullptr;
  }

 private:
  UniqueFd find(RegionId id) {
    const std::lock_guard lock(mutex_);
    for (;;) {
      if (const auto kept = offers_.find(id); kept != offers_.end()) {
        UniqueFd fd = std::move(kept->second);
        offers_.erase(kept);
        return fd;
      }
      Offer offer;
      std::vector<UniqueFd> descriptors;
      const auto result = receive_packet(sockets_.front().get(), offer, descriptors);
      if (result == PacketResult::out_of_descriptors) {
        fail(OTR_E_OUT_OF_MEMORY,
             "no file descriptor is left for shared memory; raise RLIMIT_NOFILE (ulimit -n)");
      }
      if (result != PacketResult::done || descriptors.size() != 1) return {};
      offers_[{offer.channel, offer.operation}] = std::move(descriptors.front());
    }
  }

  const std::vector<UniqueFd> sockets_;  // rank 0: to all, in rank order; others: to rank 0
  std::mutex mutex_;
  std::map<RegionId, UniqueFd> offers_;
};

}  // namespace

std::unique_ptr<Communicator> make_shm(int32_t rank, int32_t world, std::string_view job,
                                       const Settings& settings) {
  return make_shm(rank, world, job, settings, LivenessSource::best);
}

std::unique_ptr<Communicator> make_shm(int32_t rank, int32_t world, std::string_view job,
                                       const Settings& settings, LivenessSource source) {
  check_settings(rank, world, settings);
  if (job.empty()) {
    fail(OTR_E_ARGUMENT,
         "the job has no name; give all its ranks the same text: MASTER_ADDR and MASTER_PORT, "
         "OTR_JOB, or "
         "the option job");
  }
  const Clock::time_point deadline = deadline_in(settings.timeout);
  const Rendezvous rendezvous{
      rank, world, std::string(job), settings.timeout, deadline, source == LivenessSource::best};
  std::shared_ptr<Region> control;
  Attachment attachment;
  if (rank == 0) {
    control = Region::make_shared(control_bytes(world));
    initialise_control(*control, world);
    attachment = gather_ranks(rendezvous, control->fd());
  } else {
    attachment = join_rank_0(rendezvous);
    control = Region::attach(std::move(attachment.control), control_bytes(world));
    check_control(*control, world);
  }

  std::unique_ptr<Liveness> liveness;
  if (attachment.processes.empty()) {
    liveness = make_lock_liveness(control, rank);
  } else {
    liveness = make_pidfd_liveness(std::move(attachment.processes));
    control->close_fd();
  }
  // Bound by the launcher, each rank sees its own share of the cores only.
  const int32_t cores = std::min(online_cores(), usable_cores() * world);
  auto member = std::make_shared<Member>(
      rank, world, "shm", settings, choose_spin(settings.spin, world, cores), control,
      std::make_shared<SocketExchange>(std::move(attachment.sockets)), std::move(liveness));
  auto comm =
      std::make_unique<HostCommunicator>(member, control, first_channel(*control, world), "main");
  // Finding each other and this barrier share one deadline.
  member->timeout = std::max(std::chrono::duration<double>(deadline - Clock::now()).count(), 0.05);
  try {
    comm->barrier("attach");
  } catch (const Error& error) {
    if (error.status() != OTR_E_INTERRUPTED) throw;
    fail(OTR_E_INTERRUPTED,
         "rank {} was interrupted while the ranks of job '{}' attached; start all ranks again",
         rank, job);
  }
  member->timeout = settings.timeout;
  return comm;
}

}  // namespace outrigger::comm

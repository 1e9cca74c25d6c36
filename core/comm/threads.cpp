// SPDX-License-Identifier: Apache-2.0
// self and threads: ranks inside one process.
#include <map>
#include <mutex>
#include <utility>

#include "core/comm/host.h"
#include "core/threads/cores.h"

namespace outrigger::comm {
namespace {

// Regions change hands by pointer.
class ThreadExchange final : public RegionExchange {
 public:
  explicit ThreadExchange(int32_t world) : world_(world) {}

  std::shared_ptr<Region> make(size_t bytes) override { return Region::make_private(bytes); }

  void offer(RegionId id, const std::shared_ptr<Region>& region) override {
    const std::lock_guard lock(mutex_);
    offers_[id] = {region, world_ - 1};
  }

  std::shared_ptr<Region> take(RegionId id, size_t) override {
    const std::lock_guard lock(mutex_);
    const auto found = offers_.find(id);
    if (found == offers_.end()) return nullptr;
    auto region = found->second.region;
    if (--found->second.takers == 0) offers_.erase(found);
    return region;
  }

 private:
  struct Offer {
    std::shared_ptr<Region> region;
    int32_t takers;
  };
  const int32_t world_;
  std::mutex mutex_;
  std::map<RegionId, Offer> offers_;
};

std::vector<std::unique_ptr<Communicator>> make(int32_t world, std::string_view provider,
                                                const Settings& settings) {
  check_settings(0, world, settings);
  auto control = Region::make_private(control_bytes(world));
  initialise_control(*control, world);
  auto exchange = std::make_shared<ThreadExchange>(world);
  const Clock::duration spin = choose_spin(settings.spin, world, usable_cores());

  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int32_t r = 0; r < world; r++) {
    auto member = std::make_shared<Member>(r, world, provider, settings, spin, control, exchange,
                                           make_thread_liveness());
    ranks.push_back(std::make_unique<HostCommunicator>(std::move(member), control,
                                                       first_channel(*control, world), "main"));
  }
  return ranks;
}

}  // namespace

std::unique_ptr<Communicator> make_self() { return std::move(make(1, "self", Settings{}).front()); }

std::vector<std::unique_ptr<Communicator>> make_threads(int32_t world, const Settings& settings) {
  return make(world, "threads", settings);
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
// Smaller groups out of one.

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <tuple>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/gather_values.h"
#include "core/comm/host.h"

namespace outrigger::comm {
namespace {

struct Wish {
  int32_t color, key;
};

}  // namespace

std::unique_ptr<Communicator> split(Communicator& comm, int32_t color, int32_t key) {
  const std::vector<Wish> wishes =
      gather_values(comm, std::vector<Wish>{{color, key}}, "split a communicator");
  std::vector<std::pair<int32_t, int32_t>> order;  // key, rank
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    if (color >= 0 && wishes[rank].color == color) {
      order.emplace_back(wishes[rank].key, static_cast<int32_t>(rank));
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<int32_t> members;
  for (const auto& [wish, rank] : order) members.push_back(rank);
  try {
    return comm.subgroup(members);
  } catch (const Error& error) {  // half made: it cannot be called again
    if (error.status() == OTR_E_INTERRUPTED) comm.abort(error.what());
    throw;
  }
}

// Processes meet under a name that this group alone has; threads are handed their part by pointer.
std::unique_ptr<Communicator> HostCommunicator::subgroup(const std::vector<int32_t>& members) {
  const auto place = std::find(members.begin(), members.end(), rank_);
  const auto index = static_cast<int32_t>(place - members.begin());
  const auto count = static_cast<int32_t>(members.size());
  // Ranks that share cores go on to, in a smaller group.
  const bool spins = member_->spin > Clock::duration::zero();
  const Settings settings{.timeout = member_->timeout, .spin = spins ? -1 : 0};
  if (provider() == "shm") {
    // Rank 0 names the split; the group adds its first rank.
    std::array<int64_t, 2> name{current_process(),
                                std::chrono::steady_clock::now().time_since_epoch().count()};
    broadcast(std::as_writable_bytes(std::span(name)), 0, "split a communicator");
    if (members.empty()) return nullptr;
    return make_shm(index, count, format_text("split {} {} {}", name[0], name[1], members[0]),
                    settings);
  }
  std::vector<uintptr_t> made(static_cast<size_t>(world_), 0);  // by rank of this group
  if (!members.empty() && index == 0) {
    auto ranks = make_threads(count, settings);
    for (size_t i = 0; i < ranks.size(); ++i) {
      made[static_cast<size_t>(members[i])] = reinterpret_cast<uintptr_t>(ranks[i].release());
    }
  }
  unite(*this, std::span(made), "split a communicator");
  const uintptr_t mine = made[static_cast<size_t>(rank_)];
  return std::unique_ptr<Communicator>(reinterpret_cast<Communicator*>(mine));
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
// HostCommunicator: what needs new memory on all ranks, windows and duplicates.
#include <cstring>
#include <new>
#include <utility>

#include "core/comm/host.h"
#include "core/comm/host_window.h"
#include "core/comm/verdict.h"

namespace outrigger::comm {

std::shared_ptr<Region> HostCommunicator::share_region(
    size_t bytes, const std::function<void(Region&)>& populate) {
  const RegionId id{channel_.id, current_.number};
  std::shared_ptr<Region> region;
  int32_t status = OTR_OK;
  std::string trouble;
  const auto attempt = [&](auto&& action) {
    try {
      action();
    } catch (const Error& error) {
      status = error.status();
      trouble = error.what();
    } catch (const std::bad_alloc&) {
      status = OTR_E_OUT_OF_MEMORY;
    }
  };

  if (rank_ == 0) {
    attempt([&] {
      require_free_memory(bytes);
      region = member_->exchange->make(bytes);
      if (world_ > 1) member_->exchange->offer(id, region);
    });
  }
  step();
  attempt([&] {
    if (rank_ != 0) region = member_->exchange->take(id, bytes);
    if (region && status == OTR_OK) populate(*region);
  });
  if (!region && status == OTR_OK) {  // then rank 0 has the reason, and agree_on finds it first
    status = OTR_E_SYSTEM;
    trouble = "the memory that rank 0 made did not arrive";
  }
  agree_on(status, trouble);
  region->close_fd();
  return region;
}

void HostCommunicator::agree_on(int32_t status, std::string_view trouble) {
  Verdict verdict;
  verdict.set(status, trouble);
  if (world_ > 1) {
    std::memcpy(staging(rank_, step_ + 1), &verdict, sizeof(verdict));
    step();
  }
  for (int32_t r = 0; r < world_; r++) {
    if (world_ > 1) std::memcpy(&verdict, staging(r, step_), sizeof(verdict));
    verdict.require(current_.text() + " failed", r);
  }
}

std::shared_ptr<Window> HostCommunicator::create_window(WindowKind kind, size_t bytes,
                                                        std::string_view label) {
  require_usable();
  begin(OperationKind::create_window, bytes, label, static_cast<int32_t>(kind));
  const WindowLayout layout = WindowLayout::make(kind, world_, bytes);
  auto region = share_region(layout.total, [&](Region& r) {
    const auto part = layout.first_touch(rank_);
    r.populate(part.offset, part.bytes);
  });
  return std::make_shared<HostWindow>(std::move(region), layout, &member_->job,
                                      RegionId{channel_.id, current_.number});
}

std::unique_ptr<Communicator> HostCommunicator::duplicate(std::string_view name) {
  require_usable();
  begin(OperationKind::duplicate, 0, name);
  const size_t bytes = ChannelBlock::bytes(world_);
  auto region = share_region(bytes, [&](Region& r) {
    if (rank_ != 0) return;
    r.populate(0, bytes);
    reinterpret_cast<ChannelBlock*>(r.data())->id = member_->job.channels.fetch_add(1) + 1;
  });
  auto& channel = *reinterpret_cast<ChannelBlock*>(region->data());
  return std::make_unique<HostCommunicator>(member_, std::move(region), channel, name);
}

}  // namespace outrigger::comm

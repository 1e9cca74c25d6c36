// SPDX-License-Identifier: Apache-2.0
#include "core/device/collective.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/device/plugin_described.h"

namespace outrigger::device {
namespace {

[[noreturn]] void refused(const CollectivePlugin& plugin, int32_t status, const char* what) {
  const char* const text = plugin.table.last_error();
  fail(status, "{} by {} failed: {}", what, plugin.table.name,
       text == nullptr || *text == '\0' ? otr_status_name(status) : text);
}

std::vector<otr_plugin_transfer> given_by(std::span<const DeviceTransfer> list) {
  std::vector<otr_plugin_transfer> given;
  given.reserve(list.size());
  for (const DeviceTransfer& t : list) {
    given.push_back({sizeof(otr_plugin_transfer), t.peer, t.data, t.bytes});
  }
  return given;
}

}  // namespace

Collective::Id Collective::make_id(const CollectivePlugin& plugin) {
  Id id{};
  const int32_t status = plugin.table.create_id(id.data());
  if (status != OTR_OK) refused(plugin, status, "an id for the ranks");
  return id;
}

Collective::Collective(CollectivePlugin plugin, Device& device, const Id& id, int32_t rank,
                       int32_t world)
    : plugin_(std::move(plugin)) {
  otr_plugin_ranks ranks{};
  ranks.struct_size = sizeof ranks;
  ranks.device_id = device.id().device_id;
  ranks.rank = rank;
  ranks.world = world;
  std::ranges::copy(id, ranks.id);
  check(plugin_.table.create(&ranks, &collective_), "a communicator");
}

Collective::~Collective() { plugin_.table.close(collective_); }

void Collective::check(int32_t status, const char* what) const {
  if (status != OTR_OK) refused(plugin_, status, what);
}

bool Collective::is_ready() {
  int32_t ready = 0;
  check(plugin_.table.is_ready(collective_, &ready), "work");
  return ready != 0;
}

void Collective::abort() noexcept { plugin_.table.abort(collective_); }

void Collective::exchange(std::span<const DeviceTransfer> sends,
                          std::span<const DeviceTransfer> receives, Stream stream) {
  const auto out = given_by(sends), in = given_by(receives);
  check(plugin_.table.exchange(collective_, out.data(), static_cast<int64_t>(out.size()), in.data(),
                               static_cast<int64_t>(in.size()), stream),
        "an exchange");
}

void Collective::all_gather(const std::byte* mine, std::byte* all, size_t bytes, Stream stream) {
  check(plugin_.table.all_gather(collective_, mine, all, bytes, stream), "an all-gather");
}

void Collective::reduce_scatter(const std::byte* all, std::byte* mine, int64_t count, Format format,
                                Stream stream) {
  check(plugin_.table.reduce_scatter(collective_, all, mine, count, code_of(format), stream),
        "a reduce-scatter");
}

std::shared_ptr<void> Collective::registered(std::byte* data, size_t bytes) {
  if (plugin_.table.register_memory == nullptr || bytes == 0) return nullptr;
  void* handle = nullptr;
  const int32_t status = plugin_.table.register_memory(collective_, data, bytes, &handle);
  if (status != OTR_OK || handle == nullptr) return nullptr;
  return {handle, [this](void* h) { plugin_.table.unregister_memory(collective_, h); }};
}

}  // namespace outrigger::device

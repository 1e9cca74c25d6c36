// SPDX-License-Identifier: Apache-2.0
// The plugin's table: C functions over NCCL's communicators.
#include <algorithm>
#include <cstring>
#include <memory>

#include "plugins/common/guard.h"
#include "plugins/nccl/ranks.h"

using outrigger::nccl::Ranks;
using outrigger::plugins::last_error;

struct otr_plugin_collective {
  explicit otr_plugin_collective(const otr_plugin_ranks& given) : ranks(given) {}
  Ranks ranks;
};

namespace {

using outrigger::plugins::guard;

int32_t library_version(int32_t* out_version) {
  return guard([&] {
    *out_version = 0;
    *out_version = outrigger::nccl::library().version;
  });
}

int32_t create_id(unsigned char* out_id) {
  return guard([&] {
    const outrigger::nccl::UniqueId id = outrigger::nccl::make_id();
    std::memcpy(out_id, &id, sizeof id);
  });
}

int32_t create(const otr_plugin_ranks* ranks, otr_plugin_collective** out) {
  *out = nullptr;
  return guard([&] {
    otr_plugin_ranks given{};
    std::memcpy(&given, ranks, std::min<size_t>(ranks->struct_size, sizeof given));
    *out = std::make_unique<otr_plugin_collective>(given).release();
  });
}

void close(otr_plugin_collective* c) { delete c; }
void abort(otr_plugin_collective* c) { c->ranks.abort(); }

int32_t is_ready(otr_plugin_collective* c, int32_t* out_ready) {
  *out_ready = 0;
  return guard([&] { *out_ready = c->ranks.is_ready() ? 1 : 0; });
}

int32_t exchange(otr_plugin_collective* c, const otr_plugin_transfer* sends, int64_t send_count,
                 const otr_plugin_transfer* receives, int64_t receive_count, uint64_t stream) {
  return guard([&] { c->ranks.exchange(sends, send_count, receives, receive_count, stream); });
}
int32_t all_gather(otr_plugin_collective* c, const void* mine, void* all, size_t bytes,
                   uint64_t stream) {
  return guard([&] { c->ranks.all_gather(mine, all, bytes, stream); });
}
int32_t reduce_scatter(otr_plugin_collective* c, const void* all, void* mine, int64_t count,
                       int32_t format, uint64_t stream) {
  return guard([&] { c->ranks.reduce_scatter(all, mine, count, format, stream); });
}

int32_t register_memory(otr_plugin_collective* c, void* data, size_t bytes, void** out_handle) {
  *out_handle = nullptr;
  return guard([&] { *out_handle = c->ranks.add_memory(data, bytes); });
}
void unregister_memory(otr_plugin_collective* c, void* handle) { c->ranks.drop_memory(handle); }

constexpr otr_collective_plugin kTable = {
    .struct_size = sizeof(otr_collective_plugin),
    .version = OTR_COLLECTIVE_PLUGIN_VERSION,
    .name = "nccl",
    .device_type = OTR_DEVICE_CUDA,
    .reserved0 = 0,
    .last_error = last_error,
    .library_version = library_version,
    .create_id = create_id,
    .create = create,
    .close = close,
    .abort = abort,
    .is_ready = is_ready,
    .exchange = exchange,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .register_memory = register_memory,
    .unregister_memory = unregister_memory,
};

}  // namespace

extern "C" OTR_API const otr_collective_plugin* otr_collective_plugin_table(void) {
  return &kTable;
}

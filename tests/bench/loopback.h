// SPDX-License-Identifier: Apache-2.0
// One rank of a world that no machine here has: a custom communicator whose other ranks say what
// this one says. All that a rank does itself runs for real; what a network would add does not.
#pragma once

#include <cstdint>
#include <cstring>

#include "c_api/include/outrigger.h"

namespace outrigger::bench {

// What the library asked of the world.
struct Asked {
  int64_t calls = 0, received = 0;  // bytes that come to this rank
};

struct Loopback {
  int32_t rank, world;
  Asked* asked;
};

inline int32_t loopback_gather(void* data, const void* mine, size_t bytes, void* all) {
  const auto& self = *static_cast<Loopback*>(data);
  for (int32_t r = 0; r < self.world; ++r) {
    std::memcpy(static_cast<char*>(all) + static_cast<size_t>(r) * bytes, mine, bytes);
  }
  ++self.asked->calls;
  self.asked->received += static_cast<int64_t>(bytes) * (self.world - 1);
  return 0;
}

inline int32_t loopback_broadcast(void* data, void*, size_t bytes, int32_t root) {
  const auto& self = *static_cast<Loopback*>(data);
  ++self.asked->calls;
  if (root != self.rank) self.asked->received += static_cast<int64_t>(bytes);
  return 0;
}

// Every rank has for this one what it has for itself.
inline int32_t loopback_all_to_all(void* data, const void* parts, size_t bytes, void* received) {
  const auto& self = *static_cast<Loopback*>(data);
  const char* own = static_cast<const char*>(parts) + static_cast<size_t>(self.rank) * bytes;
  for (int32_t r = 0; r < self.world; ++r) {
    std::memcpy(static_cast<char*>(received) + static_cast<size_t>(r) * bytes, own, bytes);
  }
  ++self.asked->calls;
  self.asked->received += static_cast<int64_t>(bytes) * (self.world - 1);
  return 0;
}

inline int32_t loopback_duplicate(void* data, void** out) {
  *out = new Loopback(*static_cast<Loopback*>(data));
  return 0;
}

inline int32_t loopback_split(void* data, const int32_t* groups, const int32_t* places,
                              void** out) {
  const auto& self = *static_cast<Loopback*>(data);
  if (groups[self.rank] < 0) return 0;
  int32_t size = 0;
  for (int32_t r = 0; r < self.world; ++r) size += groups[r] == groups[self.rank] ? 1 : 0;
  *out = new Loopback{places[self.rank], size, self.asked};
  return 0;
}

inline void loopback_destroy(void* data) { delete static_cast<Loopback*>(data); }

inline int32_t make_loopback(otr_context* context, int32_t rank, int32_t world, Asked& asked,
                             otr_comm** out) {
  otr_comm_table table;
  const int32_t status = otr_comm_table_init(&table, sizeof table);
  if (status != OTR_OK) return status;
  table.rank = rank;
  table.world_size = world;
  auto* channel = new Loopback{rank, world, &asked};
  table.user_data = channel;
  table.all_gather = loopback_gather;
  table.broadcast = loopback_broadcast;
  table.all_to_all = loopback_all_to_all;
  table.duplicate = loopback_duplicate;
  table.split = loopback_split;
  table.destroy = loopback_destroy;
  const int32_t made = otr_comm_create_custom(context, &table, out);
  if (made != OTR_OK) delete channel;
  return made;
}

}  // namespace outrigger::bench

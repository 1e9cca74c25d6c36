// SPDX-License-Identifier: Apache-2.0
// Ranks over a communicator of the caller's functions, in which gathers of one size can be held up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "support.h"

namespace otr_test {

// Holds the gathers of so many bytes a rank up while it is closed.
struct Gate {
  static constexpr std::chrono::seconds kMost{30};
  void pass(size_t bytes) {
    std::unique_lock lock(mutex);
    if (bytes == held) ++held_up;
    changed.notify_all();
    EXPECT_TRUE(changed.wait_for(lock, kMost, [&] { return bytes != held || !closed; }));
  }
  void set(bool close) {
    const std::lock_guard lock(mutex);
    closed = close;
    changed.notify_all();
  }
  void wait_for_held() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kMost, [&] { return held_up > 0; }));
  }
  std::mutex mutex;
  std::condition_variable changed;
  size_t held = 0;
  bool closed = false;
  int held_up = 0;
};

struct GatedChannel {
  Owned<otr_comm> comm;
  Gate* gate;
};
inline int32_t gated_all_gather(void* user, const void* mine, size_t bytes, void* all) {
  const auto& channel = *static_cast<GatedChannel*>(user);
  channel.gate->pass(bytes);
  return otr_comm_all_gather(channel.comm.get(), mine, bytes, all);
}
// Of gradients; past the gate.
inline int32_t gated_all_to_all(void* user, const void* parts, size_t bytes, void* received) {
  otr_comm* const comm = static_cast<GatedChannel*>(user)->comm.get();
  int32_t rank = -1;
  EXPECT_OK(otr_comm_rank(comm, &rank));
  std::vector<char> all(4 * bytes);
  const int32_t status = otr_comm_all_gather(comm, parts, 2 * bytes, all.data());
  for (size_t from = 0; from < 2; ++from) {
    std::memcpy(static_cast<char*>(received) + from * bytes,
                all.data() + (2 * from + static_cast<size_t>(rank)) * bytes, bytes);
  }
  return status;
}
inline int32_t gated_duplicate(void* user, void** out) {
  const auto& channel = *static_cast<GatedChannel*>(user);
  otr_comm* made = nullptr;
  const int32_t status = otr_comm_duplicate(channel.comm.get(), &made);
  if (status == OTR_OK) *out = new GatedChannel{Owned<otr_comm>(made), channel.gate};
  return status;
}
inline void gated_stop(void* user, const char* reason) {
  otr_comm_abort(static_cast<GatedChannel*>(user)->comm.get(), reason);
}
inline void gated_give_back(void* user) { delete static_cast<GatedChannel*>(user); }

// Of the caller's functions: its ranks share no memory.
inline Owned<otr_comm> gated(otr_context* context, otr_comm* base, Gate& gate) {
  otr_comm_table table;
  EXPECT_OK(otr_comm_table_init(&table, sizeof table));
  EXPECT_OK(otr_comm_rank(base, &table.rank));
  EXPECT_OK(otr_comm_size(base, &table.world_size));
  otr_comm *channel = nullptr, *made = nullptr;
  EXPECT_OK(otr_comm_duplicate(base, &channel));
  table.user_data = new GatedChannel{Owned<otr_comm>(channel), &gate};
  table.all_gather = gated_all_gather;
  table.all_to_all = gated_all_to_all;
  table.duplicate = gated_duplicate;
  table.abort = gated_stop;
  table.destroy = gated_give_back;
  EXPECT_OK(otr_comm_create_custom(context, &table, &made));
  return Owned<otr_comm>(made);
}

}  // namespace otr_test

// SPDX-License-Identifier: Apache-2.0
// A communicator of the caller's functions, here over another communicator of the library.
#include <atomic>

#include "tests/fuzz/api/calls.h"

namespace otr_fuzz {
namespace {

// One channel. Channels of one communicator share `fails_at`: the call that does not work.
struct Channel {
  otr_comm* comm;
  std::atomic<int64_t>* alive;
  std::shared_ptr<std::atomic<int32_t>> fails_in;
};

int32_t answer(Channel& channel, int32_t status) { return --*channel.fails_in == 0 ? 42 : status; }

int32_t gather(void* user, const void* mine, size_t bytes, void* all) {
  auto& channel = *static_cast<Channel*>(user);
  return answer(channel, otr_comm_all_gather(channel.comm, mine, bytes, all));
}

int32_t broadcast(void* user, void* data, size_t bytes, int32_t root) {
  auto& channel = *static_cast<Channel*>(user);
  return answer(channel, otr_comm_broadcast(channel.comm, data, bytes, root));
}

void* open(otr_comm* comm, const Channel& like) {
  ++*like.alive;
  return new Channel{comm, like.alive, like.fails_in};
}

int32_t duplicate(void* user, void** out) {
  auto& channel = *static_cast<Channel*>(user);
  otr_comm* made = nullptr;
  const int32_t status = answer(channel, otr_comm_duplicate(channel.comm, &made));
  if (status == OTR_OK) {
    *out = open(made, channel);
  } else {
    otr_comm_destroy(made);
  }
  return status;
}

int32_t divide(void* user, const int32_t* groups, const int32_t* places, void** out) {
  auto& channel = *static_cast<Channel*>(user);
  int32_t rank = 0;
  otr_comm* made = nullptr;
  int32_t status = otr_comm_rank(channel.comm, &rank);
  if (status == OTR_OK) {
    status = answer(channel, otr_comm_split(channel.comm, groups[rank], places[rank], &made));
  }
  if (status == OTR_OK && made != nullptr) {
    *out = open(made, channel);
  } else {
    otr_comm_destroy(made);
  }
  return status;
}

void stop(void* user, const char* reason) {
  otr_comm_abort(static_cast<Channel*>(user)->comm, reason);
}

void close(void* user) {
  auto* channel = static_cast<Channel*>(user);
  otr_comm_destroy(channel->comm);
  --*channel->alive;
  delete channel;
}

void create(Rank& rank, Bytes& bytes) {
  otr_comm_table table;
  CALL(rank, otr_comm_table_init, &table, sizeof table);
  const CommPlace base = rank.comms.pick(bytes);
  auto fails_in = std::make_shared<std::atomic<int32_t>>(
      bytes.one_in(4) ? static_cast<int32_t>(bytes.below(40)) : -1);
  table.all_gather = gather;
  table.broadcast = bytes.one_in(2) ? broadcast : nullptr;
  table.duplicate = duplicate;
  table.split = bytes.one_in(2) ? divide : nullptr;
  table.abort = stop;
  table.destroy = close;
  const uint32_t fault = bytes.below(64);
  otr_context* context = rank.contexts.pick(bytes).handle;
  Out<otr_comm*> made(bytes), out(bytes);
  if (CALL(rank, otr_comm_duplicate, base.handle, made) != OTR_OK) return;
  table.user_data = open(made.value, {nullptr, &rank.channels, fails_in});
  CALL(rank, otr_comm_rank, made.value, &table.rank);
  CALL(rank, otr_comm_size, made.value, &table.world_size);
  if (fault == 0) table.all_gather = nullptr;
  if (fault == 1) table.duplicate = nullptr;
  if (fault == 2) table.world_size = -1;
  if (fault == 3) table.rank = table.world_size;
  if (fault == 4) table.struct_size = 8;
  void* const first = table.user_data;
  const int32_t status =
      CALL(rank, otr_comm_create_custom, context, fault == 5 ? nullptr : &table, out);
  if (status != OTR_OK) {
    close(first);  // it stayed ours
    return;
  }
  CommPlace& place = rank.comms.vacant(bytes);
  if (place.handle != nullptr) rank.drop(place);
  place = {out.value, true};
}

constexpr Call kCalls[] = {{"comm custom", Scope::collective, 5, create}};

}  // namespace

std::span<const Call> custom_calls() { return kCalls; }

}  // namespace otr_fuzz

// SPDX-License-Identifier: Apache-2.0
// Communicators and their collectives.
#include <unistd.h>

#include "core/base/text.h"
#include "tests/fuzz/api/calls.h"

namespace otr_fuzz {
namespace {

// A place for a new communicator; its old one goes.
CommPlace& renewed(Rank& rank, Bytes& bytes) {
  CommPlace& place = rank.comms.vacant(bytes);
  if (place.handle != nullptr) rank.drop(place);
  return place;
}

Roomy<otr_comm_options> draw_options(Rank& rank, Bytes& bytes) {
  Roomy<otr_comm_options> options;
  CALL(rank, otr_comm_options_init, &options, sizeof(otr_comm_options));
  options.timeout = rank.timeout;
  if (bytes.one_in(16)) options.timeout = bytes.one_in(2) ? -1 : 0;
  if (bytes.one_in(32)) options.mistake_size(bytes);
  return options;
}

void create_self(Rank& rank, Bytes& bytes) {
  CommPlace& place = renewed(rank, bytes);
  Out<otr_comm*> out(bytes);
  if (CALL(rank, otr_comm_create_self, rank.contexts.pick(bytes).handle, out) == OTR_OK) {
    place = {out.value, false};
  }
}

// A group of threads that has this rank's thread alone, or more ranks than will ever come.
void create_threads(Rank& rank, Bytes& bytes) {
  CommPlace& place = renewed(rank, bytes);
  const Roomy<otr_comm_options> options = draw_options(rank, bytes);
  otr_comm* made[4] = {};
  const int32_t size = bytes.one_in(16) ? static_cast<int32_t>(bytes.below(1000)) - 500
                                        : 1 + static_cast<int32_t>(bytes.below(2));
  otr_context* context = rank.contexts.pick(bytes).handle;
  if (size > 4) return;
  if (CALL(rank, otr_comm_create_threads, context, size, &options, &made[0]) != OTR_OK) return;
  place = {made[0], size > 1};
  for (int32_t i = 1; i < size; ++i) GIVE_BACK(rank, otr_comm_destroy, made[i]);
}

void from_environment(Rank& rank, Bytes& bytes) {
  CommPlace& place = renewed(rank, bytes);
  const Roomy<otr_comm_options> options = draw_options(rank, bytes);
  Out<otr_comm*> out(bytes);
  if (CALL(rank, otr_comm_from_env, rank.contexts.pick(bytes).handle, &options, out) == OTR_OK) {
    place = {out.value, false};
  }
}

void create_shm(Rank& rank, Bytes& bytes) {
  CommPlace& place = renewed(rank, bytes);
  Roomy<otr_comm_options> options = draw_options(rank, bytes);
  const std::string job = outrigger::format_text("otr_api_fuzz {} {}", getpid(), rank.number);
  options.job = bytes.one_in(16) ? nullptr : job.c_str();
  if (bytes.one_in(16)) options.world_size = bytes.one_in(2) ? 2 : -1;
  if (bytes.one_in(16)) options.rank = static_cast<int32_t>(bytes.below(5)) - 1;
  Out<otr_comm*> out(bytes);
  if (CALL(rank, otr_comm_create_shm, rank.contexts.pick(bytes).handle, &options, out) == OTR_OK) {
    place = {out.value, false};
  }
}

void duplicate(Rank& rank, Bytes& bytes) {
  const CommPlace parent = rank.comms.pick(bytes);
  Out<otr_comm*> out(bytes);
  if (CALL(rank, otr_comm_duplicate, parent.handle, out) != OTR_OK) return;
  CommPlace& place = renewed(rank, bytes);
  place = {out.value, parent.waits};
}

void split(Rank& rank, Bytes& bytes) {
  const CommPlace parent = rank.comms.pick(bytes);
  // Own number or the same on all; the rank's own draw must not take other bytes.
  const auto drawn = static_cast<int32_t>(bytes.below(8));
  const int32_t color = drawn < 4 ? drawn % 2 : drawn - 6 + (rank.number == drawn % 3 ? 1 : 0);
  const int32_t key = bytes.one_in(2) ? -rank.number : 0;
  Out<otr_comm*> out(bytes);
  if (CALL(rank, otr_comm_split, parent.handle, color, key, out) != OTR_OK) return;
  if (out.value == nullptr) return;
  CommPlace& place = renewed(rank, bytes);
  place = {out.value, parent.waits};
}

void barrier(Rank& rank, Bytes& bytes) {
  CALL(rank, otr_comm_barrier, rank.comms.pick(bytes).handle);
}

void broadcast(Rank& rank, Bytes& bytes) {
  std::vector<uint8_t> data(bytes.one_in(8) ? 100000 : bytes.byte());
  const auto root = static_cast<int32_t>(bytes.below(4)) - (bytes.one_in(16) ? 2 : 0);
  CALL(rank, otr_comm_broadcast, rank.comms.pick(bytes).handle,
       bytes.one_in(32) ? nullptr : static_cast<void*>(data.data()), data.size(), root);
}

void all_gather(Rank& rank, Bytes& bytes) {
  const std::vector<uint8_t> mine(bytes.one_in(8) ? 70000 : bytes.byte());
  std::vector<uint8_t> all(4 * mine.size());
  CALL(rank, otr_comm_all_gather, rank.comms.pick(bytes).handle,
       bytes.one_in(32) ? nullptr : static_cast<const void*>(mine.data()), mine.size(),
       bytes.one_in(32) ? nullptr : static_cast<void*>(all.data()));
}

void all_reduce(Rank& rank, Bytes& bytes) {
  std::vector<double> values(bytes.byte(), 0.5);
  otr_comm* comm = rank.comms.pick(bytes).handle;
  int32_t size = 0;
  CALL(rank, otr_comm_size, comm, &size);
  if (CALL(rank, otr_comm_all_reduce_sum, comm, values.data(), values.size()) != OTR_OK) return;
  for (const double value : values) {
    if (value != 0.5 * size)
      broken(outrigger::format_text("the sum of {} halves is {}", size, value));
  }
}

void place_in_group(Rank& rank, Bytes& bytes) {
  otr_comm* comm = rank.comms.pick(bytes).handle;
  Out<int32_t> number(bytes), size(bytes);
  CALL(rank, otr_comm_rank, comm, number);
  CALL(rank, otr_comm_size, comm, size);
}

void abort_group(Rank& rank, Bytes& bytes) {
  constexpr const char* kReasons[] = {nullptr, "", "a reason", "two\nlines \x01\xff"};
  CALL(rank, otr_comm_abort, rank.comms.pick(bytes).handle, bytes.pick(kReasons));
}

void destroy(Rank& rank, Bytes& bytes) { rank.drop(rank.comms.pick(bytes)); }

constexpr Call kCalls[] = {{"comm self", Scope::local, 6, create_self},
                           {"comm threads", Scope::collective, 2, create_threads},
                           {"comm from env", Scope::collective, 1, from_environment},
                           {"comm shm", Scope::collective, 1, create_shm},
                           {"comm duplicate", Scope::collective, 4, duplicate},
                           {"comm split", Scope::collective, 4, split},
                           {"comm barrier", Scope::collective, 2, barrier},
                           {"comm broadcast", Scope::collective, 2, broadcast},
                           {"comm all_gather", Scope::collective, 2, all_gather},
                           {"comm all_reduce", Scope::collective, 2, all_reduce},
                           {"comm rank and size", Scope::local, 1, place_in_group},
                           {"comm abort", Scope::local, 1, abort_group},
                           {"comm destroy", Scope::local, 3, destroy}};

}  // namespace

std::span<const Call> comm_calls() { return kCalls; }

}  // namespace otr_fuzz

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/communicator.h"

#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "c_api/src/handles.h"
#include "core/comm/custom.h"
#include "core/comm/hierarchical.h"
#include "core/comm/launched.h"
#include "core/comm/recorded.h"
#include "core/comm/transport.h"
#include "outrigger.h"

using namespace outrigger;  // NOLINT(google-build-using-namespace): the boundary names both worlds
using namespace outrigger::c_api;  // NOLINT(google-build-using-namespace)

namespace {

otr_comm_options comm_defaults() {
  otr_comm_options o{};
  o.struct_size = sizeof o;
  o.world_size = 1;
  o.timeout = 300;
  return o;
}

// Before anything is allocated for so many ranks.
void check_world_size(int32_t world_size) {
  if (world_size < 1 || world_size > comm::kMaxWorld) {
    fail(OTR_E_ARGUMENT, "world_size = {}; legal is 1 to {}", world_size, comm::kMaxWorld);
  }
}

comm::Settings settings_of(const otr_comm_options& options) {
  if (!(options.timeout > 0) || std::isinf(options.timeout)) {
    fail(OTR_E_ARGUMENT, "timeout = {} seconds; legal is any finite number above 0",
         options.timeout);
  }
  comm::Settings settings;
  settings.timeout = options.timeout;
  return settings;
}

otr_comm* wrap(const std::shared_ptr<Context>& context, std::unique_ptr<comm::Communicator> made) {
  return new otr_comm(std::make_shared<Comm>(Comm{context, std::move(made)}));
}

comm::Communicator& communicator(otr_comm* handle) { return *get(handle, "comm")->communicator; }

// Throws OTR_E_ARGUMENT where the sum is beyond any memory.
size_t sum_of(std::span<const size_t> sizes, const char* what) {
  size_t sum = 0;
  for (size_t r = 0; r < sizes.size(); ++r) {
    if (__builtin_add_overflow(sum, sizes[r], &sum) || sum > SIZE_MAX / 2) {
      fail(OTR_E_ARGUMENT, "{}[{}] = {}: the parts are more than memory can hold", what, r,
           sizes[r]);
    }
  }
  return sum;
}

}  // namespace

int32_t otr_comm_options_init(otr_comm_options* options, size_t size) noexcept {
  return init_struct(options, size, comm_defaults(), "options");
}

int32_t otr_comm_create_self(otr_context* context, otr_comm** out_comm) noexcept {
  return guard([&] {
    required(out_comm, "out_comm") = nullptr;
    const auto& kept = get(context, "context");
    *out_comm = wrap(kept, comm::recorded(comm::make_self(), kept->flight_recorder(), "main"));
  });
}

int32_t otr_comm_create_threads(otr_context* context, int32_t world_size,
                                const otr_comm_options* options, otr_comm** out_comms) noexcept {
  return guard([&] {
    required(out_comms, "out_comms");
    check_world_size(world_size);
    std::fill_n(out_comms, world_size, nullptr);
    const auto& kept = get(context, "context");
    auto made = comm::make_threads(world_size,
                                   settings_of(read_struct(options, comm_defaults(), "options")));
    std::vector<std::unique_ptr<otr_comm>> handles;
    for (auto& c : made) {
      auto own = comm::recorded(std::move(c), kept->own_flight_recorder(), "main");
      handles.emplace_back(wrap(kept, std::move(own)));
    }
    for (size_t i = 0; i < handles.size(); ++i) out_comms[i] = handles[i].release();
  });
}

int32_t otr_comm_create_shm(otr_context* context, const otr_comm_options* options,
                            otr_comm** out_comm) noexcept {
  return guard([&] {
    required(out_comm, "out_comm") = nullptr;
    const auto& kept = get(context, "context");
    const otr_comm_options o =
        read_struct(&required(options, "options"), comm_defaults(), "options");
    check_world_size(o.world_size);
    if (o.rank < 0 || o.rank >= o.world_size) {
      fail(OTR_E_ARGUMENT, "rank = {}; legal is 0 to world_size - 1 = {}", o.rank,
           o.world_size - 1);
    }
    if (o.job == nullptr || o.job[0] == '\0') {
      fail(OTR_E_ARGUMENT,
           "job is {}: give all ranks of one job the same text, or use otr_comm_from_env",
           o.job == nullptr ? "NULL" : "empty");
    }
    const auto recorder = kept->flight_recorder();  // before other ranks wait for this one
    const Interruptible scope(*kept);
    auto made = comm::make_shm(o.rank, o.world_size, o.job, settings_of(o));
    *out_comm = wrap(kept, comm::recorded(std::move(made), recorder, "main"));
  });
}

int32_t otr_comm_table_init(otr_comm_table* table, size_t size) noexcept {
  otr_comm_table defaults{};
  defaults.struct_size = sizeof defaults;
  defaults.world_size = 1;
  return init_struct(table, size, defaults, "table");
}

int32_t otr_comm_create_custom(otr_context* context, const otr_comm_table* table,
                               otr_comm** out_comm) noexcept {
  return guard([&] {
    required(out_comm, "out_comm") = nullptr;
    const auto& kept = get(context, "context");
    const otr_comm_table read = read_struct(&required(table, "table"), otr_comm_table{}, "table");
    require_rank("table has", read.rank, read.world_size);
    if (read.all_gather == nullptr) fail(OTR_E_ARGUMENT, "table.all_gather is NULL");
    if (read.duplicate == nullptr) {
      fail(OTR_E_ARGUMENT,
           "table.duplicate is NULL: an engine reduces gradients on a thread of its own and needs "
           "a channel for it");
    }
    const auto recorder = kept->flight_recorder();
    *out_comm = wrap(kept, comm::recorded(comm::make_custom(read), recorder, "main"));
  });
}

int32_t otr_comm_create_mpi(otr_context* context, const void* mpi_comm,
                            const otr_comm_options* options, otr_comm** out_comm) noexcept {
  return guard([&] {
    required(out_comm, "out_comm") = nullptr;
    const auto& kept = get(context, "context");
    const comm::Settings settings = settings_of(read_struct(options, comm_defaults(), "options"));
    const auto recorder = kept->flight_recorder();
    const Interruptible scope(*kept);
    auto made = comm::make_transport(device::load_transport_plugin("mpi"), mpi_comm, settings);
    *out_comm = wrap(kept, comm::recorded(std::move(made), recorder, "main"));
  });
}

int32_t otr_comm_create_hierarchical(otr_comm* world, otr_comm* host, otr_comm* across,
                                     otr_comm** out_comm) noexcept {
  return guard([&] {
    required(out_comm, "out_comm") = nullptr;
    const auto& whole = get(world, "world");
    const auto& here = get(host, "host");
    const auto& place = get(across, "across");
    const Interruptible scope(*whole->context);
    *out_comm = wrap(
        whole->context,
        comm::make_hierarchical(*whole->communicator, *here->communicator, *place->communicator));
  });
}

int32_t otr_comm_duplicate(otr_comm* comm, otr_comm** out_comm) noexcept {
  return guard([&] {
    required(out_comm, "out_comm") = nullptr;
    const auto& parent = get(comm, "comm");
    const Interruptible scope(*parent->context);
    *out_comm = wrap(parent->context, parent->communicator->duplicate("duplicate"));
  });
}

int32_t otr_comm_split(otr_comm* comm, int32_t color, int32_t key, otr_comm** out_comm) noexcept {
  return guard([&] {
    required(out_comm, "out_comm") = nullptr;
    const auto& parent = get(comm, "comm");
    if (color < -1) fail(OTR_E_ARGUMENT, "color = {}; legal is 0 or more, or -1 for none", color);
    const Interruptible scope(*parent->context);
    auto part = comm::split(*parent->communicator, color, key);
    if (part) *out_comm = wrap(parent->context, std::move(part));
  });
}

int32_t otr_comm_from_env(otr_context* context, const otr_comm_options* options,
                          otr_comm** out_comm) noexcept {
  return guard([&] {
    required(out_comm, "out_comm") = nullptr;
    const auto& kept = get(context, "context");
    const otr_comm_options o = read_struct(options, comm_defaults(), "options");
    const comm::Settings settings = settings_of(o);
    const comm::Launch launch = comm::read_launch_environment();
    const std::string job = o.job != nullptr && o.job[0] != '\0' ? o.job : launch.job;
    const auto recorder = kept->flight_recorder();
    const Interruptible scope(*kept);
    *out_comm = wrap(kept, comm::make_launched(launch, job, settings, recorder));
  });
}

int32_t otr_comm_rank(const otr_comm* comm, int32_t* out_rank) noexcept {
  return guard([&] {
    required(out_rank, "out_rank") = 0;
    *out_rank = get(comm, "comm")->communicator->rank();
  });
}

int32_t otr_comm_size(const otr_comm* comm, int32_t* out_world_size) noexcept {
  return guard([&] {
    required(out_world_size, "out_world_size") = 0;
    *out_world_size = get(comm, "comm")->communicator->size();
  });
}

int32_t otr_comm_shares_memory(const otr_comm* comm, int32_t* out_shares) noexcept {
  return guard([&] {
    required(out_shares, "out_shares") = 0;
    *out_shares = get(comm, "comm")->communicator->shares_memory() ? 1 : 0;
  });
}

int32_t otr_comm_barrier(otr_comm* comm) noexcept {
  return waiting(comm, [](comm::Communicator& c) { c.barrier("otr_comm_barrier"); });
}

int32_t otr_comm_broadcast(otr_comm* comm, void* data, size_t bytes, int32_t root) noexcept {
  return waiting(comm, [&](comm::Communicator& c) {
    if (bytes > 0) required(static_cast<char*>(data), "data");
    if (root < 0 || root >= c.size())
      fail(OTR_E_ARGUMENT, "root = {}; legal is 0 to {}", root, c.size() - 1);
    c.broadcast({static_cast<std::byte*>(data), bytes}, root, "otr_comm_broadcast");
  });
}

int32_t otr_comm_all_gather(otr_comm* comm, const void* mine, size_t bytes, void* all) noexcept {
  return waiting(comm, [&](comm::Communicator& c) {
    if (bytes > 0) {
      required(static_cast<const char*>(mine), "mine");
      required(static_cast<char*>(all), "all");
    }
    c.all_gather({static_cast<const std::byte*>(mine), bytes},
                 {static_cast<std::byte*>(all), bytes * static_cast<size_t>(c.size())},
                 "otr_comm_all_gather");
  });
}

int32_t otr_comm_all_to_all(otr_comm* comm, const void* parts, const size_t* part_bytes,
                            void* received, const size_t* received_bytes) noexcept {
  return guard([&] {
    Comm& owner = *get(comm, "comm");
    const Interruptible scope(*owner.context);
    const auto ranks = static_cast<size_t>(owner.communicator->size());
    const std::span sizes(&required(part_bytes, "part_bytes"), ranks);
    const std::span from_sizes(&required(received_bytes, "received_bytes"), ranks);
    if (sum_of(sizes, "part_bytes") > 0) required(static_cast<const char*>(parts), "parts");
    if (sum_of(from_sizes, "received_bytes") > 0)
      required(static_cast<char*>(received), "received");
    if (owner.all_to_all == nullptr) {
      owner.all_to_all = std::make_unique<comm::AllToAll>(*owner.communicator);
    }
    owner.all_to_all->run(static_cast<const std::byte*>(parts), sizes,
                          static_cast<std::byte*>(received), from_sizes);
  });
}

int32_t otr_comm_all_reduce_sum(otr_comm* comm, double* values, size_t count) noexcept {
  return waiting(comm, [&](comm::Communicator& c) {
    if (count > 0) required(values, "values");
    if (count > SIZE_MAX / sizeof(double) / static_cast<size_t>(c.size())) {
      fail(OTR_E_ARGUMENT, "count = {}: {} ranks' values are more than memory can hold", count,
           c.size());
    }
    const size_t of_all = count * static_cast<size_t>(c.size());
    std::array<double, 128> few;  // without a call of the allocator
    std::vector<double> many(of_all > few.size() ? of_all : 0);
    const std::span all(many.empty() ? few.data() : many.data(), of_all);
    c.all_gather(std::as_bytes(std::span(values, count)), std::as_writable_bytes(all),
                 "otr_comm_all_reduce_sum");
    for (size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (size_t at = i; at < all.size(); at += count) sum += all[at];
      values[i] = sum;
    }
  });
}

int32_t otr_comm_abort(otr_comm* comm, const char* reason) noexcept {
  return guard([&] { communicator(comm).abort(reason == nullptr ? "no reason given" : reason); });
}

void otr_comm_destroy(otr_comm* comm) noexcept { destroy(comm); }

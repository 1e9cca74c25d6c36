// SPDX-License-Identifier: Apache-2.0
// What is behind each handle.
#pragma once

#include <vector>

#include "c_api/src/guard.h"
#include "core/checkpoint/assembly.h"
#include "core/comm/all_to_all.h"
#include "core/comm/communicator.h"
#include "core/context/interrupt.h"
#include "core/engine/engine.h"
#include "core/engine/open_checkpoint.h"
#include "core/engine/pass.h"
#include "core/engine/rank_copies.h"
#include "core/message/message.h"
#include "core/optimizer/optimizer.h"

namespace outrigger::c_api {

// A communicator keeps its context; an engine keeps both.
struct Comm {
  std::shared_ptr<Context> context;
  std::shared_ptr<comm::Communicator> communicator;
  std::unique_ptr<comm::AllToAll> all_to_all =
      nullptr;  // once it has been called; goes before what it is over
};

}  // namespace outrigger::c_api

struct otr_context : outrigger::c_api::Handle<outrigger::Context, 0x6f74722d63747831> {
  using Handle::Handle;
};
struct otr_comm : outrigger::c_api::Handle<outrigger::c_api::Comm, 0x6f74722d636f6d31> {
  using Handle::Handle;
};
struct otr_engine : outrigger::c_api::Handle<outrigger::engine::Engine, 0x6f74722d656e6731> {
  using Handle::Handle;
};
struct otr_pass : outrigger::c_api::Handle<outrigger::engine::Pass, 0x6f74722d70617331> {
  using Handle::Handle;
};
struct otr_shard : outrigger::c_api::Handle<outrigger::optimizer::Shard, 0x6f74722d73686431> {
  using Handle::Handle;
};
struct otr_optimizer
    : outrigger::c_api::Handle<outrigger::optimizer::Optimizer, 0x6f74722d6f707431> {
  using Handle::Handle;
};

struct otr_checkpoint
    : outrigger::c_api::Handle<outrigger::engine::OpenCheckpoint, 0x6f74722d63707431> {
  using Handle::Handle;
};

struct otr_snapshot : outrigger::c_api::Handle<outrigger::engine::RankCopies, 0x6f74722d736e7031> {
  using Handle::Handle;
};

struct otr_message : outrigger::c_api::Handle<outrigger::message::Message, 0x6f74722d6d736731> {
  using Handle::Handle;
};

struct otr_checkpoint_writer
    : outrigger::c_api::Handle<outrigger::checkpoint::Assembly, 0x6f74722d63707731> {
  using Handle::Handle;
};

namespace outrigger::c_api {

inline std::vector<optimizer::Shard*> shards_of(otr_shard* const* shards, int64_t count) {
  required_count(count, shards, "shards");
  std::vector<optimizer::Shard*> list;
  for (int64_t i = 0; i < count; ++i) list.push_back(get(shards[i], "shards[i]").get());
  return list;
}

// A call that waits for other ranks unless the host interrupts it.
template <typename Body>
int32_t waiting(otr_engine* handle, const Body& body) noexcept {
  return guard([&] {
    engine::Engine& engine = *get(handle, "engine");
    const Interruptible scope(engine.context());
    body(engine);
  });
}
template <typename Body>
int32_t waiting(otr_comm* handle, const Body& body) noexcept {
  return guard([&] {
    const Comm& comm = *get(handle, "comm");
    const Interruptible scope(*comm.context);
    body(*comm.communicator);
  });
}

}  // namespace outrigger::c_api

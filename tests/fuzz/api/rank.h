// SPDX-License-Identifier: Apache-2.0
// What one rank of a program has: handles in numbered places, and what it knows of them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "outrigger.h"
#include "tests/fuzz/api/bytes.h"
#include "tests/fuzz/api/call.h"
#include "tests/fuzz/api/tensors.h"
#include "tests/fuzz/api/trace.h"

namespace otr_fuzz {

struct Parameter {
  std::string name;
  Shape shape;
};

// What stays known of an engine when its handle is gone and its passes live on.
struct Model {
  const char* compute = "float32";
  Where where = nullptr;  // the engine's device
  std::vector<Parameter> parameters;
  int64_t passes = 0;  // not destroyed yet
};

struct ContextPlace {
  otr_context* handle = nullptr;
};
struct CommPlace {
  otr_comm* handle = nullptr;
  bool waits = true;  // its calls may wait for another rank, or for a callback
};
struct EnginePlace {
  otr_engine* handle = nullptr;
  std::shared_ptr<Model> model = std::make_shared<Model>();
};
struct PassPlace {
  otr_pass* handle = nullptr;
  std::shared_ptr<Model> model = std::make_shared<Model>();
  std::vector<Shape> outputs;
  struct Slot {
    int64_t id;
    otr_tensor tensor;
  };
  std::vector<Slot> slots;  // asked for and not handed back
};
struct ShardPlace {
  otr_shard* handle = nullptr;
  Sample weights, grads, published, remainder;
};
struct OptimizerPlace {
  otr_optimizer* handle = nullptr;
};
// Memory that the host got of otr_device_allocate.
struct MemoryPlace {
  void* handle = nullptr;
  Where where = nullptr;
};

// Draws take the same bytes whatever is in the places, so that ranks stay in step.
template <typename Place, size_t kCount>
class Places {
 public:
  // Mostly one that has a handle; sometimes any.
  Place& pick(Bytes& bytes) {
    const uint32_t drawn = bytes.byte();
    const size_t first = drawn % kCount;
    if (drawn >= 8) {
      for (size_t i = 0; i < kCount; ++i) {
        Place& place = all[(first + i) % kCount];
        if (place.handle != nullptr) return place;
      }
    }
    return all[first];
  }
  // One without a handle; the drawn one if there is none.
  Place& vacant(Bytes& bytes) {
    Place& drawn = all[bytes.byte() % kCount];
    for (Place& place : all) {
      if (place.handle == nullptr) return place;
    }
    return drawn;
  }
  std::array<Place, kCount> all;
};

struct Rank {
  Rank(int32_t its_number, int32_t world_size, double seconds, Devices& all_devices)
      : number(its_number),
        world(world_size),
        timeout(seconds),
        devices(all_devices),
        trace(its_number) {}
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void drop(ContextPlace& place);
  void drop(CommPlace& place);
  void drop(EnginePlace& place);
  void drop(PassPlace& place);
  void drop(ShardPlace& place);
  void drop(OptimizerPlace& place);
  void drop(MemoryPlace& place);
  // Gives everything back, in an order that is drawn.
  void drop_all(Bytes& bytes);

  int32_t number, world;
  double timeout;
  Devices& devices;
  Trace trace;
  std::atomic<int64_t> channels{0};  // of custom communicators, not given back
  Places<ContextPlace, 2> contexts;
  Places<CommPlace, 5> comms;
  Places<EnginePlace, 3> engines;
  Places<PassPlace, 4> passes;
  Places<ShardPlace, 3> shards;
  Places<OptimizerPlace, 2> optimizers;
  Places<MemoryPlace, 2> memories;
};

// A parameter's id, now and then one that there is not; and the shape that it has.
struct DrawnParameter {
  int64_t id;
  Shape shape;
};
DrawnParameter draw_parameter(Bytes& bytes, const Model& model);

// NULL, a good one, or one with a flag, a tag, a stream or a size that may be wrong. On a device,
// often with a stream there.
const otr_call_info* draw_call_info(Bytes& bytes, Where where, Roomy<otr_call_info>& info);

// NULL, or only a stream of the device.
const otr_call_info* draw_stream(Bytes& bytes, Where where, Roomy<otr_call_info>& info);

// Where a value is read to or written from: both memories are right.
Where draw_where(Bytes& bytes, const Model& model);

}  // namespace otr_fuzz

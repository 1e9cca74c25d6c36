// SPDX-License-Identifier: Apache-2.0
// The table of what a program can do. Each area of the header has a file; a new function takes a
// row in one of them.
#pragma once

#include <cstdint>
#include <span>

#include "tests/fuzz/api/rank.h"

namespace otr_fuzz {

// What a row calls waits for no other rank; where it fails, nothing has changed. Or it may wait.
enum class Scope : uint8_t { local, collective };

struct Call {
  const char* name;
  Scope scope;
  uint32_t weight;  // how often it is drawn beside the others
  void (*run)(Rank& rank, Bytes& bytes);
};

std::span<const Call> context_calls();
std::span<const Call> comm_calls();
std::span<const Call> custom_calls();
std::span<const Call> device_calls();
std::span<const Call> engine_calls();
std::span<const Call> query_calls();
std::span<const Call> parameter_calls();
std::span<const Call> value_calls();
std::span<const Call> pass_calls();
std::span<const Call> step_calls();
std::span<const Call> shard_calls();
std::span<const Call> model_calls();

// Of this engine, which may have a step pending.
void acquire(Rank& rank, Bytes& bytes, EnginePlace& place);
void release(Rank& rank, Bytes& bytes, EnginePlace& place);
void prefetch(Rank& rank, Bytes& bytes, EnginePlace& place);

// otr_engine_set_device, on a device of the rank's own or one that ranks share, seldom a wrong one.
void put_on_device(Rank& rank, Bytes& bytes, EnginePlace& place);

// The row that a number of 16 bits stands for.
const Call& drawn_call(uint32_t number);

}  // namespace otr_fuzz

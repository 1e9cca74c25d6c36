// SPDX-License-Identifier: Apache-2.0
// What the mock NCCL's functions share.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/common/work.h"
#include "tests/plugins/nccl/mock_links.h"

namespace outrigger::nccl {

namespace mock {

// Page-locked memory of the driver's, for data on its way.
struct Buffer {
  void* data;
  size_t bytes;
};

// A copy between a device and a buffer, and a message of the buffer's.
struct Part {
  int peer;
  cuda::Pointer device;
  size_t bytes;
  bool is_send;
};

// What goes into a stream together.
struct Operation {
  std::shared_ptr<ncclComm> owner;
  Stream stream = nullptr;
  std::vector<Part> parts;
  // In place of receives: their sum with this rank's own, to its slice.
  bool sums = false;
  cuda::Pointer own = 0, sum = 0;
  size_t sum_bytes = 0;
  DataType type = 0;

  std::vector<Message> sends, receives;  // once it is in the stream
  std::vector<std::byte*> buffers;
  std::byte* own_buffer = nullptr;
  std::atomic<bool> is_over{false};
};

}  // namespace mock

// A communicator, here and in operations on their way.
struct ncclComm : std::enable_shared_from_this<ncclComm> {
  ncclComm(const UniqueId& id, int rank_, int world_) : links(id), rank(rank_), world(world_) {}
  mock::Links links;
  const int rank, world;
  std::atomic<bool> aborted{false};
  std::atomic<Result> failed{kSuccess};
  std::shared_ptr<mock::Operation> pending;  // begun, not in its stream yet
  int asked = 0;                             // how often for that one
  std::vector<std::shared_ptr<mock::Operation>> in_streams;
  std::vector<mock::Buffer> free_buffers, used_buffers;
  std::string text;
};

namespace mock {

struct State {
  std::mutex mutex;  // guards all that follows
  std::map<Communicator, std::shared_ptr<ncclComm>> communicators;
  std::map<void*, Communicator> registrations;
  int version = 22809, async_error = 0, registers = 1;
  std::atomic<bool> stall{false};
  int64_t calls = 0, fail_in = 0, operations = 0, sums = 0, bytes = 0;
  Result fail_with = 0;
  std::string failed;
};
State& state();

// Counts the call and lets it fail if it is its turn.
Result turn_of(const char* name);

// streams.cpp; the context is current.
void launch(const std::shared_ptr<Operation>& operation);
void end(ncclComm& communicator);

}  // namespace mock
}  // namespace outrigger::nccl

#define OTR_NCCL_DECLARE(symbol, ...) \
  extern "C" __attribute__((visibility("default"))) outrigger::nccl::Result symbol(__VA_ARGS__);
namespace outrigger::nccl {
OTR_NCCL_FUNCTIONS(OTR_NCCL_DECLARE)
#ifndef OTR_MOCK_NCCL_OLD
OTR_NCCL_NEWER_FUNCTIONS(OTR_NCCL_DECLARE)
#endif
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(Result result);
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(Communicator c);
}  // namespace outrigger::nccl
#undef OTR_NCCL_DECLARE

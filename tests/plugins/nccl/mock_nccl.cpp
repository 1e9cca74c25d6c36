// SPDX-License-Identifier: Apache-2.0
// The functions of the mock NCCL.
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "mock_nccl.h"
#include "tests/plugins/nccl/mock_state.h"

namespace outrigger::nccl {
namespace mock {

State& state() {
  static auto* all = new State;  // never destroyed: communicators are closed while a process ends
  return *all;
}

Result turn_of(const char* name) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  ++s.calls;
  if (s.fail_in == 0 || --s.fail_in > 0) return kSuccess;
  s.failed = name;
  return s.fail_with;
}

namespace {

// Of this thread's group.
struct Group {
  int depth = 0;
  std::shared_ptr<Operation> operation;
};
Group& group() {
  thread_local Group own;
  return own;
}

template <typename Body>
Result called(const char* name, const Body& body) {
  const Result result = turn_of(name);
  if (result != kSuccess) return result;
  try {
    return body();
  } catch (const plugins::Failure&) {
    return kUnhandledCudaError;
  } catch (const std::bad_alloc&) {
    return kUnhandledCudaError;
  } catch (const std::runtime_error&) {
    return kSystemError;
  }
}

std::shared_ptr<ncclComm> find(Communicator communicator) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().communicators.find(communicator);
  return found == state().communicators.end() ? nullptr : found->second;
}

bool is_met(const ncclComm& c) { return c.links.shared().came.load() == c.world; }

cuda::Pointer pointer_to(const void* data) {
  return static_cast<cuda::Pointer>(reinterpret_cast<uintptr_t>(data));
}

// One at a time, and none before the ranks have met.
template <typename Body>
Result begun(const char* name, Communicator communicator, Stream stream, const Body& body) {
  return called(name, [&]() -> Result {
    const std::shared_ptr<ncclComm> c = find(communicator);
    if (!c) return kInvalidArgument;
    if (!is_met(*c) || c->pending) return kInvalidUsage;
    const auto operation = std::make_shared<Operation>();
    operation->owner = c;
    operation->stream = stream;
    const Result result = body(*c, *operation);
    if (result != kSuccess) return result;
    c->pending = operation;
    c->asked = 0;
    return kInProgress;
  });
}

size_t bytes_of(DataType type) {
  return type == kUint8 ? 1 : type == kFloat16 || type == kBfloat16 ? 2 : type == kFloat32 ? 4 : 0;
}

Result add(const char* name, bool is_send, const void* data, size_t count, DataType type, int peer,
           Communicator communicator, Stream stream) {
  return called(name, [&]() -> Result {
    const std::shared_ptr<ncclComm> c = find(communicator);
    if (!c || peer < 0 || peer >= c->world || bytes_of(type) == 0) return kInvalidArgument;
    if (group().depth == 0 || !is_met(*c) || c->pending) return kInvalidUsage;
    std::shared_ptr<Operation>& operation = group().operation;
    if (!operation) operation = std::make_shared<Operation>();
    if (operation->owner && (operation->owner != c || operation->stream != stream)) {
      return kInvalidUsage;  // NCCL could; the plugin does not
    }
    operation->owner = c;
    operation->stream = stream;
    operation->parts.push_back({peer, pointer_to(data), count * bytes_of(type), is_send});
    return kSuccess;
  });
}

}  // namespace
}  // namespace mock

using mock::begun;
using mock::called;
using mock::state;

extern "C" {

const char* ncclGetErrorString(Result result) {
  return result == kUnhandledCudaError ? "unhandled cuda error"
         : result == kSystemError      ? "unhandled system error"
         : result == kInternalError    ? "internal error"
         : result == kInvalidArgument  ? "invalid argument"
         : result == kInvalidUsage     ? "invalid usage"
         : result == kRemoteError      ? "remote process exited or there was a network error"
                                       : "unknown result code";
}
const char* ncclGetLastError(Communicator) { return "the mock library's last words"; }

Result ncclGetVersion(int* version) {
  return called("ncclGetVersion", [&] {
    const std::lock_guard lock(state().mutex);
    *version = state().version;
    return kSuccess;
  });
}
Result ncclGetUniqueId(UniqueId* id) {
  return called("ncclGetUniqueId", [&] {
    *id = mock::Links::make();
    return kSuccess;
  });
}
Result ncclCommInitRankConfig(Communicator* out, int world, UniqueId id, int rank, Config* config) {
  return called("ncclCommInitRankConfig", [&]() -> Result {
    if (config->size != sizeof(Config) || config->magic != 0xcafebeef || config->blocking != 0 ||
        world > mock::kMostRanks) {
      return kInvalidArgument;
    }
    const auto made = std::make_shared<ncclComm>(id, rank, world);
    made->links.shared().came.fetch_add(1);
    *out = made.get();
    const std::lock_guard lock(state().mutex);
    state().communicators[made.get()] = made;
    return kInProgress;
  });
}
// What gives something back does it, whatever it then tells.
Result ncclCommAbort(Communicator communicator) {
  const Result result = mock::turn_of("ncclCommAbort");
  const std::shared_ptr<ncclComm> c = mock::find(communicator);
  if (!c) return kInvalidArgument;
  mock::end(*c);
  const std::lock_guard lock(state().mutex);
  state().communicators.erase(communicator);
  std::erase_if(state().registrations, [&](const auto& each) {
    if (each.second != communicator) return false;
    delete static_cast<char*>(each.first);
    return true;
  });
  return result;
}
Result ncclCommGetAsyncError(Communicator communicator, Result* out) {
  return called("ncclCommGetAsyncError", [&]() -> Result {
    const std::shared_ptr<ncclComm> c = mock::find(communicator);
    if (!c) return kInvalidArgument;
    {
      const std::lock_guard lock(state().mutex);
      *out = state().async_error != 0 ? state().async_error : c->failed.load();
    }
    if (*out != kSuccess) return kSuccess;
    *out = kInProgress;
    if (!mock::is_met(*c)) return kSuccess;
    if (c->pending) {
      if (++c->asked < 2) return kSuccess;
      mock::launch(std::exchange(c->pending, nullptr));
    }
    *out = kSuccess;
    return kSuccess;
  });
}

Result ncclGroupStart() {
  return called("ncclGroupStart", [] {
    ++mock::group().depth;
    return kSuccess;
  });
}
Result ncclGroupEnd() {
  mock::Group& group = mock::group();
  if (group.depth == 0) return kInvalidUsage;
  --group.depth;
  const std::shared_ptr<mock::Operation> operation = std::exchange(group.operation, nullptr);
  if (!operation) return mock::turn_of("ncclGroupEnd");
  return begun("ncclGroupEnd", operation->owner.get(), operation->stream,
               [&](ncclComm&, mock::Operation& o) {
                 o.parts = operation->parts;
                 return kSuccess;
               });
}
Result ncclSend(const void* data, size_t count, DataType type, int peer, Communicator communicator,
                Stream stream) {
  return mock::add("ncclSend", true, data, count, type, peer, communicator, stream);
}
Result ncclRecv(void* data, size_t count, DataType type, int peer, Communicator communicator,
                Stream stream) {
  return mock::add("ncclRecv", false, data, count, type, peer, communicator, stream);
}

Result ncclAllGather(const void* mine, void* all, size_t count, DataType type,
                     Communicator communicator, Stream stream) {
  return begun("ncclAllGather", communicator, stream, [&](ncclComm& c, mock::Operation& o) {
    const size_t bytes = count * mock::bytes_of(type);
    for (int r = 0; r < c.world; ++r) {  // its own too, so that it gets to its place
      o.parts.push_back({r, mock::pointer_to(mine), bytes, true});
      o.parts.push_back({r, mock::pointer_to(all) + static_cast<size_t>(r) * bytes, bytes, false});
    }
    return bytes > 0 ? kSuccess : kInvalidArgument;
  });
}
Result ncclReduceScatter(const void* all, void* mine, size_t count, DataType type, RedOp operation,
                         Communicator communicator, Stream stream) {
  return begun("ncclReduceScatter", communicator, stream, [&](ncclComm& c, mock::Operation& o) {
    const size_t bytes = count * mock::bytes_of(type);
    if (operation != kSum || bytes < 2 * count) return kInvalidArgument;
    const auto slice = [&](int r) {
      return mock::pointer_to(all) + static_cast<size_t>(r) * bytes;
    };
    for (int r = 0; r < c.world; ++r) {
      if (r == c.rank) continue;
      o.parts.push_back({r, slice(r), bytes, true});
      o.parts.push_back({r, 0, bytes, false});
    }
    o.sums = true;
    o.own = slice(c.rank);
    o.sum = mock::pointer_to(mine);
    o.sum_bytes = bytes;
    o.type = type;
    return kSuccess;
  });
}

#ifndef OTR_MOCK_NCCL_OLD
Result ncclCommRegister(Communicator communicator, void* data, size_t bytes, void** handle) {
  return called("ncclCommRegister", [&]() -> Result {
    const std::shared_ptr<ncclComm> c = mock::find(communicator);
    if (!c || !mock::is_met(*c) || bytes == 0 || data == nullptr) return kInvalidArgument;
    const std::lock_guard lock(state().mutex);
    if (state().registers == 0) return kInvalidUsage;
    *handle = new char;
    state().registrations[*handle] = communicator;
    return kSuccess;
  });
}
Result ncclCommDeregister(Communicator, void* handle) {
  const Result result = mock::turn_of("ncclCommDeregister");
  const std::lock_guard lock(state().mutex);
  if (state().registrations.erase(handle) == 0) return kInvalidArgument;
  delete static_cast<char*>(handle);
  return result;
}
#endif

__attribute__((visibility("default"))) bool otr_mock_nccl_set(const char* name, double value) {
  mock::State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto number = static_cast<int>(value);
  const std::string key = name;
  if (key == "stall") {
    s.stall = number != 0;
    return true;
  }
  if (key == "fail_in") {
    s.fail_in = number;
    s.failed.clear();
    return true;
  }
  int* const to = key == "version"       ? &s.version
                  : key == "fail_with"   ? &s.fail_with
                  : key == "async_error" ? &s.async_error
                  : key == "registers"   ? &s.registers
                                         : nullptr;
  if (to != nullptr) *to = number;
  return to != nullptr;
}
__attribute__((visibility("default"))) double otr_mock_nccl_get(const char* name) {
  mock::State& s = state();
  const std::lock_guard lock(s.mutex);
  const std::string key = name;
  if (key == "communicators") return static_cast<double>(s.communicators.size());
  if (key == "registrations") return static_cast<double>(s.registrations.size());
  return key == "bytes"        ? static_cast<double>(s.bytes)
         : key == "calls"      ? static_cast<double>(s.calls)
         : key == "operations" ? static_cast<double>(s.operations)
         : key == "sums"       ? static_cast<double>(s.sums)
                               : -1;
}
__attribute__((visibility("default"))) const char* otr_mock_nccl_failed() {
  return state().failed.c_str();
}

}  // extern "C"
}  // namespace outrigger::nccl

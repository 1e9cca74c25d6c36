// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl/ranks.h"

#include <cstring>

#include "plugins/common/work.h"

namespace outrigger::nccl {
namespace {

// A stream's number is CUDA's own handle; 0 and 1 are the default stream.
Stream stream_of(uint64_t number) {
  return reinterpret_cast<Stream>(
      static_cast<uintptr_t>(number == 0 ? cuda::kLegacyStream : number));
}

struct Element {
  DataType type;
  size_t bytes;
};
Element element_of_format(int32_t format) {
  switch (format) {
    case OTR_PLUGIN_FLOAT32:
      return {kFloat32, 4};
    case OTR_PLUGIN_BFLOAT16:
      return {kBfloat16, 2};
    case OTR_PLUGIN_FLOAT16:
      return {kFloat16, 2};
    case OTR_PLUGIN_FLOAT64:
      return {kFloat64, 8};
    default:
      plugins::fail(OTR_E_ARGUMENT, "format " + std::to_string(format) +
                                        " cannot be summed: 0 is float32, 1 bfloat16, 2 float16, "
                                        "3 float64");
  }
}

}  // namespace

UniqueId make_id() {
  const Library& nccl = library();
  UniqueId id{};
  const Result result = nccl.ncclGetUniqueId.at(&id);
  if (result != kSuccess) {
    plugins::fail(status_of(result), text_of(nccl, nccl.ncclGetUniqueId.name, result, nullptr));
  }
  return id;
}

Ranks::Ranks(const otr_plugin_ranks& given)
    : library_(library()), gpu_(given.device_id), rank_(given.rank), world_(given.world) {
  if (world_ < 1 || rank_ < 0 || rank_ >= world_) {
    plugins::fail(OTR_E_ARGUMENT, "rank " + std::to_string(rank_) + " of " +
                                      std::to_string(world_) + " does not exist");
  }
  UniqueId id{};
  static_assert(sizeof id == OTR_PLUGIN_ID_BYTES);
  std::memcpy(&id, given.id, sizeof id);
  Config config;
  config.blocking = 0;
  const std::lock_guard lock(mutex_);
  const cuda::Current current(gpu_);
  try {
    call(library_.ncclCommInitRankConfig, &communicator_, world_, id, rank_, &config);
  } catch (...) {
    if (communicator_ != nullptr) static_cast<void>(library_.ncclCommAbort.at(communicator_));
    throw;
  }
}

Ranks::~Ranks() { abort(); }

// Every rank's operations are over when the engines' last common call is, so to end without the
// others takes nothing from them; ncclCommDestroy could wait for them.
void Ranks::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return;
  try {
    const cuda::Current current(gpu_);
    static_cast<void>(library_.ncclCommAbort.at(communicator_));
  } catch (const plugins::Failure&) {  // the context is gone, and so is what NCCL had there
  }
  communicator_ = nullptr;
}

void Ranks::failed(const char* call, Result result) const {
  plugins::fail(status_of(result), text_of(library_, call, result, communicator_));
}

void Ranks::require_open() const {
  if (communicator_ == nullptr) plugins::fail(OTR_E_ABORTED, "this NCCL communicator was aborted");
}

bool Ranks::is_ready() {
  const std::lock_guard lock(mutex_);
  require_open();
  const cuda::Current current(gpu_);
  Result now = kSuccess;
  call(library_.ncclCommGetAsyncError, communicator_, &now);
  if (now != kSuccess && now != kInProgress) failed("NCCL, in the background", now);
  return now == kSuccess;
}

void Ranks::refuse_peer(const otr_plugin_transfer& transfer) const {
  plugins::fail(OTR_E_ARGUMENT, "there is no rank " + std::to_string(transfer.peer) +
                                    " to exchange with; there are " + std::to_string(world_));
}

void Ranks::exchange(const otr_plugin_transfer* sends, int64_t send_count,
                     const otr_plugin_transfer* receives, int64_t receive_count, uint64_t stream) {
  const std::lock_guard lock(mutex_);
  require_open();
  const cuda::Current current(gpu_);
  call(library_.ncclGroupStart);
  // A group that was started has to end, whatever becomes of what is in it.
  struct Group {
    Ranks& ranks;
    bool is_open = true;
    ~Group() {
      if (is_open) static_cast<void>(ranks.library_.ncclGroupEnd.at());
    }
  } group{*this};
  const auto each = [&](const otr_plugin_transfer* list, int64_t count, const auto& body) {
    for (int64_t i = 0; i < count; ++i) {
      const otr_plugin_transfer transfer = plugins::element_of(list, i);
      if (transfer.peer < 0 || transfer.peer >= world_) refuse_peer(transfer);
      if (transfer.bytes > 0) body(transfer);
    }
  };
  each(sends, send_count, [&](const otr_plugin_transfer& t) {
    call(library_.ncclSend, t.data, t.bytes, kUint8, t.peer, communicator_, stream_of(stream));
  });
  each(receives, receive_count, [&](const otr_plugin_transfer& t) {
    call(library_.ncclRecv, t.data, t.bytes, kUint8, t.peer, communicator_, stream_of(stream));
  });
  group.is_open = false;
  call(library_.ncclGroupEnd);
}

void Ranks::all_gather(const void* mine, void* all, size_t bytes, uint64_t stream) {
  const std::lock_guard lock(mutex_);
  require_open();
  if (bytes == 0) return;
  const cuda::Current current(gpu_);
  call(library_.ncclAllGather, mine, all, bytes, kUint8, communicator_, stream_of(stream));
}

void Ranks::reduce_scatter(const void* all, void* mine, int64_t count, int32_t format,
                           uint64_t stream) {
  const Element element = element_of_format(format);
  const std::lock_guard lock(mutex_);
  require_open();
  if (count == 0) return;
  const cuda::Current current(gpu_);
  call(library_.ncclReduceScatter, all, mine, static_cast<size_t>(count), element.type, kSum,
       communicator_, stream_of(stream));
}

void* Ranks::add_memory(void* data, size_t bytes) {
  if (library_.ncclCommRegister.at == nullptr || library_.ncclCommDeregister.at == nullptr) {
    plugins::fail(OTR_E_UNSUPPORTED, library_.path + " has no ncclCommRegister: NCCL 2.19 has");
  }
  const std::lock_guard lock(mutex_);
  require_open();
  const cuda::Current current(gpu_);
  void* handle = nullptr;
  call(library_.ncclCommRegister, communicator_, data, bytes, &handle);
  return handle;
}

void Ranks::drop_memory(void* handle) noexcept {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr || handle == nullptr) return;
  try {
    const cuda::Current current(gpu_);
    static_cast<void>(library_.ncclCommDeregister.at(communicator_, handle));
  } catch (const plugins::Failure&) {
  }
}

}  // namespace outrigger::nccl

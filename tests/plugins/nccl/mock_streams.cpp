// SPDX-License-Identifier: Apache-2.0
// The mock NCCL's work in a stream: what is sent comes to the host, a function in the stream's
// order moves it between the ranks, and what was received goes back.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "kernels/kernels.h"
#include "tests/plugins/nccl/mock_state.h"

namespace outrigger::nccl::mock {
namespace {

template <typename... P>
void need(const cuda::Entry<P...>& entry, std::type_identity_t<P>... arguments) {
  if (entry.at(arguments...) != cuda::kSuccess) throw std::bad_alloc();
}

// A buffer that stays the operation's until it is over.
std::byte* buffer_for(ncclComm& owner, size_t bytes) {
  auto& free = owner.free_buffers;
  const auto found = std::ranges::find_if(free, [&](const Buffer& b) { return b.bytes >= bytes; });
  if (found != free.end()) {
    owner.used_buffers.push_back(*found);
    free.erase(found);
  } else {
    void* made = nullptr;
    need(cuda::driver().cuMemHostAlloc, &made, bytes, cuda::kPortable);
    owner.used_buffers.push_back({made, bytes});
    const std::lock_guard lock(state().mutex);
    state().bytes += static_cast<int64_t>(bytes);
  }
  return static_cast<std::byte*>(owner.used_buffers.back().data);
}

kernels::Format format_of(DataType type) {
  return type == kFloat32    ? kernels::Format::float32
         : type == kBfloat16 ? kernels::Format::bfloat16
                             : kernels::Format::float16;
}

// As around a ring: the slice's sum begins behind its rank and ends there, and is rounded at each.
void sum_up(Operation& o) {
  const kernels::Format format = format_of(o.type);
  const auto count = static_cast<int64_t>(o.sum_bytes / kernels::size_of(format));
  std::vector<float> sum(static_cast<size_t>(count)), next(sum.size());
  std::vector<std::byte> rounded(o.sum_bytes);
  for (int i = 1; i <= o.owner->world; ++i) {
    const int from = (o.owner->rank + i) % o.owner->world;
    const auto sent = std::ranges::find(o.receives, from, &Message::peer);
    const std::byte* const source = sent == o.receives.end() ? o.own_buffer : sent->bytes.data();
    kernels::convert(next.data(), kernels::Format::float32, source, format, count);
    for (size_t k = 0; i > 1 && k < sum.size(); ++k) next[k] = sum[k] + next[k];
    kernels::convert(rounded.data(), format, next.data(), kernels::Format::float32, count);
    kernels::convert(sum.data(), kernels::Format::float32, rounded.data(), format, count);
  }
  std::ranges::copy(rounded, o.own_buffer);
}

// On the stream's thread, which must not call the driver.
void move_all(void* given) {
  auto& o = *static_cast<Operation*>(given);
  bool agrees = true;
  while (!o.owner->aborted && agrees) {
    const bool moves =
        !state().stall && move(o.owner->links.shared(), o.owner->rank, o.sends, o.receives, agrees);
    if (is_done(o.sends) && is_done(o.receives)) break;
    if (!moves) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  if (!agrees) o.owner->failed = kInternalError;
  if (o.sums && agrees && !o.owner->aborted) sum_up(o);
}
void finish(void* given) { static_cast<Operation*>(given)->is_over = true; }

}  // namespace

void launch(const std::shared_ptr<Operation>& operation) {
  Operation& o = *operation;
  ncclComm& owner = *o.owner;
  const cuda::Driver& driver = cuda::driver();
  // Buffers of operations that are over are free again, if all are.
  std::erase_if(owner.in_streams, [](const auto& each) { return each->is_over.load(); });
  if (owner.in_streams.empty()) {
    owner.free_buffers.insert(owner.free_buffers.end(), owner.used_buffers.begin(),
                              owner.used_buffers.end());
    owner.used_buffers.clear();
  }
  for (const Part& part : o.parts) {
    std::byte* const buffer = buffer_for(owner, part.bytes);
    o.buffers.push_back(buffer);
    (part.is_send ? o.sends : o.receives).push_back({part.peer, {buffer, part.bytes}});
    if (part.is_send) {
      need(driver.cuMemcpyDtoHAsync_v2, buffer, part.device, part.bytes, o.stream);
    }
  }
  if (o.sums) {
    o.own_buffer = buffer_for(owner, o.sum_bytes);
    need(driver.cuMemcpyDtoHAsync_v2, o.own_buffer, o.own, o.sum_bytes, o.stream);
  }
  owner.in_streams.push_back(operation);
  need(driver.cuLaunchHostFunc, o.stream, move_all, &o);
  for (size_t i = 0; i < o.parts.size(); ++i) {
    if (o.parts[i].is_send || o.sums) continue;
    need(driver.cuMemcpyHtoDAsync_v2, o.parts[i].device, o.buffers[i], o.parts[i].bytes, o.stream);
  }
  if (o.sums) need(driver.cuMemcpyHtoDAsync_v2, o.sum, o.own_buffer, o.sum_bytes, o.stream);
  need(driver.cuLaunchHostFunc, o.stream, finish, &o);
  const std::lock_guard lock(state().mutex);
  ++state().operations;
  if (o.sums) ++state().sums;
}

void end(ncclComm& communicator) {
  communicator.aborted = true;
  const cuda::Driver& driver = cuda::driver();
  static auto* const left = new std::vector<std::shared_ptr<Operation>>;  // a lost device's
  for (const auto& each : communicator.in_streams) {
    if (each->is_over || driver.cuStreamSynchronize.at(each->stream) == cuda::kSuccess) continue;
    const std::lock_guard lock(state().mutex);
    left->push_back(each);
  }
  auto& all = communicator.used_buffers;
  all.insert(all.end(), communicator.free_buffers.begin(), communicator.free_buffers.end());
  for (const Buffer& buffer : all) {
    static_cast<void>(driver.cuMemFreeHost.at(buffer.data));
    const std::lock_guard lock(state().mutex);
    state().bytes -= static_cast<int64_t>(buffer.bytes);
  }
  communicator.used_buffers.clear();
  communicator.free_buffers.clear();
  // Each operation keeps its communicator.
  communicator.pending = nullptr;
  communicator.in_streams.clear();
}

}  // namespace outrigger::nccl::mock

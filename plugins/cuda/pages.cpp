// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/pages.h"

#include <algorithm>
#include <iterator>

#include "plugins/common/work.h"

namespace outrigger::cuda {
namespace {

bool is_host_memory_of_driver(Gpu& gpu, const void* data) {
  unsigned kind = 0;
  const auto address = static_cast<Pointer>(reinterpret_cast<uintptr_t>(data));
  return gpu.driver.cuPointerGetAttribute.at(&kind, kMemoryType, address) == kSuccess &&
         kind == static_cast<unsigned>(kHostMemory);
}

}  // namespace

Pages& pages() {
  static auto* all = new Pages;  // never destroyed: memory is unlocked while the process ends
  return *all;
}

void Pages::lock(Gpu& gpu, void* data, size_t bytes) {
  const auto* const begin = static_cast<std::byte*>(data);
  const std::lock_guard lock(mutex_);
  const auto known = ranges_.find(begin);
  if (known != ranges_.end() && known->second.bytes == bytes) {
    ++known->second.users;
    return;
  }
  const auto next = ranges_.lower_bound(begin + bytes);
  if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin) {
    plugins::fail(OTR_E_ARGUMENT, "a part of these " + std::to_string(bytes) +
                                      " bytes is page-locked already, in a piece of " +
                                      std::to_string(std::prev(next)->second.bytes));
  }
  const auto& take = gpu.driver.cuMemHostRegister_v2;
  const Result result = take.at(data, bytes, kPortable);
  const bool is_theirs = result == kAlreadyRegistered && is_host_memory_of_driver(gpu, begin) &&
                         is_host_memory_of_driver(gpu, begin + bytes - 1);
  if (result == kOutOfMemory) {
    plugins::fail(OTR_E_OUT_OF_MEMORY, std::to_string(bytes) + " bytes of host memory: " +
                                           text_of(gpu.driver, take.name, result) +
                                           "; a limit may be RLIMIT_MEMLOCK (ulimit -l)");
  }
  if (result != kSuccess && !is_theirs) gpu.failed(take.name, result);
  ranges_.emplace(begin, Range{bytes, 1, !is_theirs});
}

void Pages::unlock(Gpu& gpu, void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto known = ranges_.find(static_cast<const std::byte*>(data));
  if (known == ranges_.end() || --known->second.users > 0) return;
  if (known->second.is_ours) gpu.try_call(gpu.driver.cuMemHostUnregister, data);
  ranges_.erase(known);
}

Pages::Run Pages::run_of(Gpu& gpu, const void* data, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  size_t until_next = bytes;
  {
    const std::lock_guard lock(mutex_);
    const auto next = ranges_.upper_bound(begin);
    if (next != ranges_.end()) {
      until_next = std::min(bytes, static_cast<size_t>(next->first - begin));
    }
    if (next != ranges_.begin()) {
      const auto& [first, range] = *std::prev(next);
      if (begin < first + range.bytes) {
        return {std::min(bytes, static_cast<size_t>(first + range.bytes - begin)), true};
      }
    }
  }
  return {until_next, is_host_memory_of_driver(gpu, begin) &&
                          is_host_memory_of_driver(gpu, begin + until_next - 1)};
}

}  // namespace outrigger::cuda

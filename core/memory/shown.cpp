// SPDX-License-Identifier: Apache-2.0
#include "core/memory/shown.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/memory/host_memory.h"

namespace outrigger::memory {
namespace {

// Less is filled with zeros more quickly than the system is asked for them.
constexpr size_t kWorthACall = size_t{1} << 16;

// The whole pages of a large one, whoever has the rest of the first and the last one.
std::span<std::byte> pages_of(std::span<std::byte> memory) {
  if (memory.size() < kWorthACall) return {};
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t end = (begin + memory.size()) / page * page;
  return memory.subspan(first - begin, end - first);
}

}  // namespace

Shown::~Shown() {
  for (const Free& each : free_) device::release_host(each.memory);
}

std::shared_ptr<std::byte> Shown::take(Purpose purpose, size_t bytes,
                                       std::span<const device::Neighbour> others) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(free_, [&](const Free& each) { return each.bytes == bytes; });
  Free memory{{}, bytes};
  if (found != free_.end()) {
    memory = *found;
    *found = free_.back();
    free_.pop_back();
    const std::span all(memory.memory.data, bytes);
    const std::span<std::byte> pages = pages_of(all);
    const size_t before = pages.empty() ? bytes : static_cast<size_t>(pages.data() - all.data());
    std::memset(all.data(), 0, before);
    const size_t after = bytes - before - pages.size();
    std::memset(all.data() + bytes - after, 0, after);
  } else {
    memory.memory = allocate_host(purpose, bytes, others);
  }
  return {memory.memory.data, [this, memory](std::byte*) { put_back(memory); }};
}

void Shown::put_back(const Free& memory) noexcept {
  const std::span<std::byte> pages = pages_of({memory.memory.data, memory.bytes});
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
  const std::lock_guard lock(mutex_);
  try {
    free_.push_back(memory);
  } catch (...) {
    device::release_host(memory.memory);
  }
}

void Shown::keep(std::shared_ptr<void> memory) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    kept_.push_back(std::move(memory));
  } catch (...) {  // it goes
  }
}

void Shown::keep_mapping(void* address, size_t bytes) noexcept {
  const auto unmap = [bytes](void* mapping) { munmap(mapping, bytes); };
  try {
    keep({address, unmap});
  } catch (...) {  // the pointer's own memory could not be had, and it has unmapped
  }
}

}  // namespace outrigger::memory

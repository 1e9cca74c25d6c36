// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace outrigger::simulated {
namespace {

constexpr size_t kAlignment = 256;

size_t round_up(size_t bytes) {
  return std::max<size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
}

}  // namespace

Memory::Memory(size_t bytes) : capacity_(bytes), limit_(bytes) {
  const int file = memfd_create("outrigger-simulated-device", MFD_CLOEXEC);
  if (file < 0) throw std::bad_alloc();
  void* outside = MAP_FAILED;
  void* inside = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    outside = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
    inside = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (outside == MAP_FAILED || inside == MAP_FAILED) {
    if (outside != MAP_FAILED) munmap(outside, bytes);
    throw std::bad_alloc();
  }
  madvise(inside, bytes, MADV_DONTFORK);
  outside_ = static_cast<std::byte*>(outside);
  inside_ = static_cast<std::byte*>(inside);
}

Memory::~Memory() {
  munmap(outside_, capacity_);
  munmap(inside_, capacity_);
}

void* Memory::allocate(size_t bytes, int fill) {
  if (bytes > capacity_) return nullptr;
  const size_t size = round_up(bytes);
  const std::lock_guard lock(mutex_);
  if (used_bytes_ + size > limit_) return nullptr;
  size_t at = 0;
  for (const auto& [offset, taken] : used_) {
    if (offset - at >= size) break;
    at = offset + taken;
  }
  if (at + size > capacity_) return nullptr;
  used_.emplace(at, size);
  used_bytes_ += size;
  std::memset(inside_ + at, fill, size);
  return outside_ + at;
}

size_t Memory::bytes_of(const void* data) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      used_.find(reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(outside_));
  return found == used_.end() ? 0 : found->second;
}

bool Memory::release(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found =
      used_.find(reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(outside_));
  if (found == used_.end()) return false;
  used_bytes_ -= found->second;
  used_.erase(found);
  return true;
}

std::byte* Memory::inside(const void* data, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto begin = reinterpret_cast<uintptr_t>(outside_);
  if (address < begin || address - begin >= capacity_) return nullptr;
  const size_t at = address - begin;
  const std::lock_guard lock(mutex_);
  auto after = used_.upper_bound(at);
  if (after == used_.begin()) return nullptr;
  const auto& [offset, size] = *--after;
  return bytes <= offset + size - at && at < offset + size ? inside_ + at : nullptr;
}

size_t Memory::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return limit_ - std::min(limit_, used_bytes_);
}

size_t Memory::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

void Memory::set_limit(size_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = std::min(bytes, capacity_);
}

}  // namespace outrigger::simulated

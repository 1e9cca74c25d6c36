// SPDX-License-Identifier: Apache-2.0
// A plugin's device: memory there, the plugin's or the host's pool's, and page-locked host memory.
#include <cstdint>

#include "core/base/error.h"
#include "core/device/plugin.h"

namespace outrigger::device {

static_assert(kNoStream == OTR_PLUGIN_NO_STREAM);
std::byte* PluginDevice::take(size_t bytes, Stream stream) {
  void* data = nullptr;
  check(table_.allocate(device_, bytes, stream, &data), "allocation");
  return static_cast<std::byte*>(data);
}

void PluginDevice::set_allocator(const std::optional<otr_device_allocator>& allocator) {
  const std::lock_guard lock(mutex_);
  if (allocated_ > 0) {
    fail(OTR_E_STATE,
         "{} bytes of {} device {} are in use: set the allocator before an engine is put there",
         allocated_, table_.name, device_id_);
  }
  allocator_ = allocator;
}

std::byte* PluginDevice::take_from_host(size_t bytes, Stream stream) {
  constexpr size_t kAlignment = 256;
  const Stream order = stream == kNoStream ? own_stream() : stream;
  void* data = nullptr;
  if (allocator_->allocate(allocator_->user_data, bytes, order, &data) != 0 || data == nullptr) {
    fail(OTR_E_OUT_OF_MEMORY, "the host's allocator has no {} bytes on {} device {}", bytes,
         table_.name, device_id_);
  }
  try {
    if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
      fail(OTR_E_HOST, "the host's allocator gave {} device {} the address {}: {} must divide it",
           table_.name, device_id_, data, kAlignment);
    }
    if (stream == kNoStream) {
      zero(data, bytes, order);
      synchronize(order);
    }
  } catch (...) {
    allocator_->release(allocator_->user_data, data, bytes, order);
    throw;
  }
  return static_cast<std::byte*>(data);
}

void PluginDevice::count(int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  allocated_ += bytes;
}

// While anything is counted the allocator stays who it is.
std::byte* PluginDevice::allocate(size_t bytes, Stream stream) {
  count(static_cast<int64_t>(bytes));
  try {
    return allocator_ ? take_from_host(bytes, stream) : take(bytes, stream);
  } catch (...) {
    count(-static_cast<int64_t>(bytes));
    throw;
  }
}

void PluginDevice::release(std::byte* data, size_t bytes, Stream stream) noexcept {
  if (allocator_) {
    if (stream == kNoStream) drain();
    const Stream order = stream == kNoStream ? own_stream() : stream;
    allocator_->release(allocator_->user_data, data, bytes, order);
  } else if (table_.release(device_, data, stream) != OTR_OK) {
    static_cast<void>(table_.release(device_, data, kNoStream));
  }
  count(-static_cast<int64_t>(bytes));
}
void PluginDevice::free(void* data) {
  check(table_.release(device_, data, kNoStream), "freeing memory");
}
void PluginDevice::drain() noexcept { static_cast<void>(table_.synchronize(device_)); }

void PluginDevice::pin(void* data, size_t bytes) {
  if (bytes > 0) check(table_.pin(device_, data, bytes), "page-locking host memory");
}
void PluginDevice::unpin(void* data) noexcept { table_.unpin(device_, data); }

}  // namespace outrigger::device

// SPDX-License-Identifier: Apache-2.0
// Simulated devices as a host's own code sees them: memory and a stream there, which a framework
// has from its allocator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "outrigger.h"
#include "outrigger_plugin.h"

namespace otr_fuzz {

inline constexpr int32_t kSimulated = OTR_DEVICE_EXTENSION;  // device_type

// Open as long as it lives, with a context of its own. Any thread.
class Device {
 public:
  explicit Device(int32_t id);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] otr_device id() const { return {kSimulated, id_}; }
  [[nodiscard]] otr_context* context() const { return context_; }
  [[nodiscard]] uint64_t stream() const { return stream_; }
  // Null: it has none to give, or has failed.
  [[nodiscard]] void* allocate(size_t bytes) const;
  void release(void* data) const;
  // to = from, row-major, one of them here; also after the work of stream(). False: it has failed.
  bool copy(const otr_tensor& to, const otr_tensor& from) const;
  // The same from host memory, in the order of stream(): `bytes` stay until that is done.
  void copy_later(const otr_tensor& to, const std::vector<uint8_t>& bytes) const;
  // Everything that was allocated was given back.
  void expect_empty() const;

 private:
  int32_t id_;
  const otr_device_plugin* table_;
  otr_context* context_ = nullptr;
  otr_plugin_device* opened_ = nullptr;
  uint64_t stream_ = 0;
};

// The devices of one program. They outlive all that its ranks have, so that what is left on them at
// the end can be seen.
class Devices {
 public:
  const Device& open(int32_t id);
  // All must be empty by now.
  void close();

 private:
  std::mutex mutex_;
  std::array<std::unique_ptr<Device>, 8> all_;  // guarded by mutex_
};

// Zero-filled bytes for a tensor, on a device or (null) on the host.
class Memory {
 public:
  Memory(const Device* device, size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] const Device* device() const { return device_; }
  [[nodiscard]] void* data() { return device_ == nullptr ? host_.data() : there_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  const Device* device_;
  size_t size_;
  std::vector<uint8_t> host_;
  void* there_ = nullptr;
};

// Bytes of a row-major tensor, which is on the host or on `device`. Nothing is done, and empty
// given, where the device has failed.
void put(const Device* device, const otr_tensor& to, const std::vector<uint8_t>& bytes);
std::vector<uint8_t> get(const Device* device, const otr_tensor& from);

}  // namespace otr_fuzz

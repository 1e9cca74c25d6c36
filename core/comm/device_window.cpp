// SPDX-License-Identifier: Apache-2.0
#include "core/comm/device_window.h"

#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/combine.h"
#include "core/comm/verdict.h"

namespace outrigger::comm {
namespace {

class DeviceMemory {
 public:
  DeviceMemory(device::Device& device, size_t bytes)
      : device_(device),
        bytes_(bytes),
        data_(bytes == 0 ? nullptr : device.allocate(bytes, device::kNoStream)) {}
  ~DeviceMemory() {
    if (data_ != nullptr) device_.release(data_, bytes_, device::kNoStream);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  device::Device& device_;
  size_t bytes_;
  std::byte* data_;
};

class DeviceWindow final : public Window {
 public:
  DeviceWindow(device::Device& device, int32_t rank, size_t bytes, Announce announce)
      : device_(device), rank_(rank), bytes_(bytes), announce_(std::move(announce)) {
    restore();
  }
  std::byte* block(int32_t rank) const override {
    return rank == rank_ && memory_ ? memory_->data() : nullptr;
  }
  size_t bytes() const override { return bytes_; }
  void drop() noexcept override {
    announced_.reset();
    memory_.reset();
  }
  void restore() override {
    if (memory_) return;
    memory_.emplace(device_, bytes_);
    if (announce_) announced_ = announce_({memory_->data(), bytes_});
  }

 private:
  device::Device& device_;
  int32_t rank_;
  size_t bytes_;
  Announce announce_;
  std::optional<DeviceMemory> memory_;
  std::shared_ptr<void> announced_;  // ends before the memory
};

}  // namespace

std::shared_ptr<Window> create_device_window(Group& group, device::Device& device, size_t bytes,
                                             std::string_view label, const Announce& announce) {
  FirstVerdict first;
  std::shared_ptr<Window> window;
  try {
    window = std::make_shared<DeviceWindow>(device, group.rank(), bytes, announce);
  } catch (const Error& error) {
    first.set(group.rank(), error.status(), error.what());
  }
  combine_value(group, first, merge_first, label);
  first.require(format_text("'{}'", label));
  return window;
}

}  // namespace outrigger::comm

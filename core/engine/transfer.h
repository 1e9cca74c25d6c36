// SPDX-License-Identifier: Apache-2.0
// Values between tensors, which are the host's or a device's, and an engine's memory.
#pragma once

#include "core/device/device.h"
#include "core/memory/block.h"
#include "core/memory/ledger.h"
#include "core/tensor/tensor.h"

namespace outrigger::engine {

// device: where tensors are that are not the host's; scratch memory is charged to the ledger.
// All elements of the tensor as float32, in host memory.
void read_tensor(memory::Ledger& ledger, device::Device& device, const tensor::View& from,
                 float* values);
// Of its elements [first, first + count).
void read_part(memory::Ledger& ledger, device::Device& device, const tensor::View& from,
               int64_t first, int64_t count, float* values);
// And back, from host memory: into a tensor of the host or of the device.
void write_tensor(memory::Ledger& ledger, device::Device& device, const tensor::View& to,
                  const void* values, kernels::Format format);
// Memory of the device as the host can read it: itself, or a copy of so many bytes, which it keeps.
[[nodiscard]] const std::byte* on_host(memory::Ledger& ledger, device::Device& device,
                                       const std::byte* data, int64_t bytes, memory::Block& copy);
// Memory of a device that the host writes whole: where it is, or to a copy that goes there then.
class ForDevice {
 public:
  ForDevice(memory::Ledger& ledger, device::Device& device, std::byte* to, int64_t bytes)
      : device_(device),
        to_(to),
        bytes_(static_cast<size_t>(bytes)),
        copy_(ledger, memory::Purpose::acquired, device.is_host() ? 0 : bytes) {}
  [[nodiscard]] std::byte* host() const { return device_.is_host() ? to_ : copy_.data(); }
  void send() const {
    if (!device_.is_host()) device_.upload_now(to_, copy_.data(), bytes_);
  }

 private:
  device::Device& device_;
  std::byte* to_;
  size_t bytes_;
  memory::Block copy_;
};
// A device's memory = values / factor, by way of host memory of the same format.
void put(memory::Ledger& ledger, device::Device& device, void* to, kernels::Format format,
         const float* values, int64_t count, double factor);

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// A private block of memory, the host's or a device's: zero-filled, 64-byte aligned, charged to a
// ledger while it lives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device/device.h"
#include "core/device/host.h"
#include "core/memory/ledger.h"

namespace outrigger::memory {

class Block {
 public:
  Block() = default;
  // device null or the host: host memory. A device outlives its blocks; freeing one waits for the
  // work that was given to it. Throws OTR_E_OUT_OF_MEMORY naming the purpose and the bytes.
  Block(Ledger& ledger, Purpose purpose, int64_t bytes, device::Device* device = nullptr);
  Block(Block&& other) noexcept { *this = static_cast<Block&&>(other); }
  Block& operator=(Block&& other) noexcept;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { release(); }

  [[nodiscard]] std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void release() noexcept;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  device::HostMemory memory_;  // without a device
  Ledger* ledger_ = nullptr;
  device::Device* device_ = nullptr;  // null: the host's
  Charge charge_;
};

}  // namespace outrigger::memory

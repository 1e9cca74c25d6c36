// SPDX-License-Identifier: Apache-2.0
// A reserved address range of the host whose pages can be released and restored: what a framework
// has kept of it (a view, a tensor that its autograd saved) is valid again once it is filled again.
// On a device memory is held only while it is filled, and its address may change.
#pragma once

#include "core/memory/block.h"

namespace outrigger::memory {

class ReleasableBlock {
 public:
  ReleasableBlock() = default;
  // Of a device: as Block. The host: reserves the address, which `shown` keeps in the end; throws
  // OTR_E_OUT_OF_MEMORY naming the purpose and the bytes where there is no room for that.
  ReleasableBlock(Ledger& ledger, Purpose purpose, int64_t bytes, device::Device* device,
                  Shown* shown);
  ReleasableBlock(ReleasableBlock&& other) noexcept {
    *this = static_cast<ReleasableBlock&&>(other);
  }
  ReleasableBlock& operator=(ReleasableBlock&& other) noexcept;
  ReleasableBlock(const ReleasableBlock&) = delete;
  ReleasableBlock& operator=(const ReleasableBlock&) = delete;
  ~ReleasableBlock();

  explicit operator bool() const { return bytes_ > 0; }
  [[nodiscard]] std::byte* data() const { return is_host() ? address_ : block_.data(); }
  [[nodiscard]] bool filled() const { return filled_; }
  // Makes the memory readable and writable, and charges it; nothing if it is. The host's is
  // zero-filled, a device's is for work that comes after in its stream for uploads.
  void fill();
  // Gives the memory back and keeps the address. Reading it then is a mistake: it reads zeros, and
  // in a debug build the program ends there.
  void drop() noexcept;
  // A device's last use is in this stream.
  void free_after(device::Stream stream) { block_.free_after(stream); }

 private:
  [[nodiscard]] bool is_host() const { return device_ == nullptr || device_->is_host(); }

  Ledger* ledger_ = nullptr;
  Purpose purpose_ = Purpose::acquired;
  int64_t bytes_ = 0;
  device::Device* device_ = nullptr;
  Shown* shown_ = nullptr;
  bool filled_ = false;
  std::byte* address_ = nullptr;  // the host's
  Charge charge_;                 // of the host's
  Block block_;                   // a device's
};

}  // namespace outrigger::memory

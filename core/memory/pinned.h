// SPDX-License-Identifier: Apache-2.0
// Host memory that is page-locked for a device's copies, which then run beside the host.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/config/config.h"
#include "core/device/device.h"
#include "core/memory/ledger.h"

namespace outrigger::memory {

using config::Pin;

class Pinned {
 public:
  // At a time: a driver may refuse more in one piece.
  static constexpr size_t kMost = size_t{64} << 30;

  Pinned() = default;
  // All of the memory is locked, or none. prefer: where the device refuses, the memory serves
  // without; the ledger says so. require: that is the device's error. off: nothing is locked.
  // device, ledger and memory outlive this. A host as device has nothing to lock.
  Pinned(device::Device& device, Ledger& ledger, std::span<std::byte> memory, Pin pin,
         size_t most = kMost);
  Pinned(Pinned&& other) noexcept { *this = static_cast<Pinned&&>(other); }
  Pinned& operator=(Pinned&& other) noexcept;
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned();

 private:
  void unlock() noexcept;

  device::Device* device_ = nullptr;
  Ledger* ledger_ = nullptr;
  std::vector<std::byte*> pieces_;
  Ledger::Locked locked_;
};

// A function that does so, for those who keep its result and know nothing of ledgers.
[[nodiscard]] inline auto page_lock(device::Device& device, Ledger& ledger, Pin pin) {
  return [&device, &ledger, pin](std::span<std::byte> memory) -> std::shared_ptr<void> {
    return std::make_shared<Pinned>(device, ledger, memory, pin);
  };
}

}  // namespace outrigger::memory

// SPDX-License-Identifier: Apache-2.0
// Host memory that callers are shown: acquired parameters, slots. A caller's language may keep an
// array of it after its time, and reading that must not end the process. So an address that was
// shown stays until this goes; the memory behind it is given back.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/device/host.h"
#include "core/memory/ledger.h"

namespace outrigger::memory {

class Shown {
 public:
  Shown() = default;
  ~Shown();
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  // Zero-filled; the last copy hands it back, before this goes. Throws as Block. Any thread.
  [[nodiscard]] std::shared_ptr<std::byte> take(Purpose purpose, size_t bytes,
                                                std::span<const device::Neighbour> others);
  // Something whose owner has given its pages back.
  void keep(std::shared_ptr<void> memory) noexcept;
  void keep_mapping(void* address, size_t bytes) noexcept;

 private:
  struct Free {
    device::HostMemory memory;
    size_t bytes;
  };
  void put_back(const Free& memory) noexcept;

  std::mutex mutex_;
  std::vector<Free> free_;  // for the next ones of their sizes
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace outrigger::memory

// SPDX-License-Identifier: Apache-2.0
#include "core/memory/pinned.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace outrigger::memory {

Pinned::Pinned(device::Device& device, Ledger& ledger, std::span<std::byte> memory, Pin pin,
               size_t most)
    : device_(&device), ledger_(&ledger) {
  if (device.is_host() || memory.empty()) return;
  locked_.wanted = static_cast<int64_t>(memory.size());
  if (pin == Pin::off) {
    locked_.reason = "outrigger.host_memory.pin is \"off\"";
    ledger.add(locked_);
    return;
  }
  try {
    pieces_.reserve((memory.size() + most - 1) / most);
    for (size_t at = 0; at < memory.size(); at += most) {
      device.pin(memory.data() + at, std::min(most, memory.size() - at));
      pieces_.push_back(memory.data() + at);
    }
    locked_.bytes = locked_.wanted;
  } catch (const Error& error) {
    unlock();
    if (pin == Pin::require) {
      fail(error.status(),
           "{} bytes of host memory cannot be page-locked: {}; set outrigger.host_memory.pin to "
           "\"prefer\" to go on without, with copies that the host waits for",
           memory.size(), error.what());
    }
    locked_.reason = error.what();
  } catch (...) {
    unlock();
    throw;
  }
  ledger.add(locked_);
}

Pinned& Pinned::operator=(Pinned&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(ledger_, other.ledger_);
  std::swap(pieces_, other.pieces_);
  std::swap(locked_, other.locked_);
  return *this;
}

void Pinned::unlock() noexcept {
  for (std::byte* const piece : pieces_) device_->unpin(piece);
  pieces_.clear();
}

Pinned::~Pinned() {
  unlock();
  if (locked_.wanted > 0) ledger_->remove(locked_);
}

}  // namespace outrigger::memory

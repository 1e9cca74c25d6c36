// SPDX-License-Identifier: Apache-2.0
#include "core/memory/block.h"

#include <utility>

#include "core/context/error.h"
#include "core/device/host.h"

namespace outrigger::memory {
namespace {

// Arrays that a step walks through side by side begin at different places in a page and on
// different pages. First-level caches pick a line by its place in the page, and AMD's guess at the
// way by a hash of address bits 12 to 27: float32 states of 64 Mi elements are 2^28 bytes apart,
// and took each other's lines away (AdamW took 1.4 to 1.5 times as long on Zen 4).
size_t offset_of(Purpose purpose, size_t bytes) {
  constexpr size_t kLarge = size_t{32} << 20, kApart = 7 * 4096 + 2048;
  return bytes < kLarge ? 0 : static_cast<size_t>(purpose) * kApart;
}

}  // namespace

Block::Block(Ledger& ledger, Purpose purpose, int64_t bytes, device::Device* device) {
  if (bytes <= 0) return;
  const auto size = static_cast<size_t>(bytes);
  const bool on_device = device != nullptr && !device->is_host();
  if (on_device) {
    try {
      data_ = device->allocate(size);
    } catch (const Error& error) {
      fail(error.status(), "{}: {}", name_of(purpose), error.what());
    }
    device_ = device;
  } else {
    offset_ = offset_of(purpose, size);
    data_ = device::allocate_host(size, offset_);
    if (data_ == nullptr) {
      fail(OTR_E_OUT_OF_MEMORY,
           "{} bytes of {} are not to be had: use more ranks, a higher ZeRO stage or "
           "lower-precision states",
           bytes, name_of(purpose));
    }
    ledger.charge_on_touch(bytes);
  }
  bytes_ = size;
  ledger_ = &ledger;
  charge_ = Charge(ledger, purpose, bytes, on_device ? Place::device : Place::host);
}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    offset_ = std::exchange(other.offset_, 0);
    ledger_ = std::exchange(other.ledger_, nullptr);
    device_ = std::exchange(other.device_, nullptr);
    charge_ = std::move(other.charge_);
  }
  return *this;
}

void Block::release() noexcept {
  if (data_ == nullptr) return;
  if (device_ != nullptr) {
    device_->release(data_, bytes_);
  } else {
    ledger_->charge_on_touch(-static_cast<int64_t>(bytes_));
    device::release_host(data_, bytes_, offset_);
  }
  data_ = nullptr;
}

}  // namespace outrigger::memory

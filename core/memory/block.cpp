// SPDX-License-Identifier: Apache-2.0
#include "core/memory/block.h"

#include <utility>

#include "core/context/error.h"

namespace outrigger::memory {

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
    const bool of_updates = is_of_updates(purpose);
    memory_ = device::allocate_host(
        size, of_updates ? ledger.neighbours() : std::vector<device::Neighbour>{});
    data_ = memory_.data;
    if (data_ == nullptr) {
      fail(OTR_E_OUT_OF_MEMORY,
           "{} bytes of {} are not to be had: use more ranks, a higher ZeRO stage or "
           "lower-precision states",
           bytes, name_of(purpose));
    }
    ledger.charge_on_touch(bytes);
    if (of_updates) ledger.add_neighbour({data_, size});
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
    memory_ = std::exchange(other.memory_, {});
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
    ledger_->remove_neighbour(data_);
    device::release_host(memory_);
  }
  data_ = nullptr;
}

}  // namespace outrigger::memory

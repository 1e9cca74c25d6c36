// SPDX-License-Identifier: Apache-2.0
#include "core/memory/block.h"

#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/memory/host_memory.h"
#include "core/memory/shown.h"

namespace outrigger::memory {

namespace {

constexpr size_t kNoted = size_t{1} << 20;  // smaller ones have no pages of their own

PageNote note_of(Ledger& ledger, const std::byte* data, size_t bytes) {
  return bytes < kNoted ? PageNote() : PageNote(ledger, {data, bytes});
}

std::shared_ptr<std::byte> host_memory(Purpose purpose, size_t bytes,
                                       std::span<const device::Neighbour> others) {
  const device::HostMemory memory = allocate_host(purpose, bytes, others);
  return {memory.data, [memory](std::byte*) { device::release_host(memory); }};
}

}  // namespace

Pool::Pool(Purpose purpose, int64_t bytes, std::span<const device::Neighbour> others)
    : bytes_(static_cast<size_t>(bytes)) {
  if (bytes > 0) memory_ = host_memory(purpose, bytes_, others);
}

Block::Block(Ledger& ledger, Purpose purpose, int64_t bytes, device::Device* device,
             device::Stream stream, Shown* shown)
    : purpose_(purpose), stream_(stream) {
  if (bytes <= 0) return;
  bytes_ = static_cast<size_t>(bytes);
  ledger_ = &ledger;
  if (device != nullptr && !device->is_host()) {
    device_ = device;
    allocate_there();
    return;
  }
  const bool of_updates = is_of_updates(purpose);
  const std::vector<device::Neighbour> others =
      of_updates ? ledger.neighbours() : std::vector<device::Neighbour>{};
  memory_ = shown != nullptr ? shown->take(purpose, bytes_, others)
                             : host_memory(purpose, bytes_, others);
  data_ = memory_.get();
  if (of_updates) ledger.add_neighbour({data_, bytes_});
  note_ = note_of(ledger, data_, bytes_);
  charge_ = Charge(ledger, purpose, bytes, Space::host,
                   is_touched_later(purpose) ? Touch::later : Touch::now);
}

void Block::allocate_there() {
  try {
    data_ = device_->allocate(bytes_, stream_);
  } catch (const Error& error) {
    fail(error.status(), "{}: {}", name_of(purpose_), error.what());
  }
  charge_ = Charge(*ledger_, purpose_, static_cast<int64_t>(bytes_), Space::device);
}

void Block::drop() noexcept {
  if (device_ == nullptr || data_ == nullptr) return;
  device_->release(std::exchange(data_, nullptr), bytes_, stream_);
  charge_ = {};
}

void Block::restore() {
  if (device_ != nullptr && data_ == nullptr) allocate_there();
}

Block::Block(Ledger& ledger, Purpose purpose, int64_t bytes, Pool& pool) {
  if (bytes <= 0) return;
  bytes_ = static_cast<size_t>(bytes);
  memory_ = pool.memory_;
  data_ = memory_.get() + pool.used_;
  pool.used_ += static_cast<size_t>(Pool::room_of(bytes));
  ledger_ = &ledger;
  charge_ = Charge(ledger, purpose, bytes, Space::host, Touch::later);
  note_ = note_of(ledger, data_, bytes_);
}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    purpose_ = other.purpose_;
    memory_ = std::move(other.memory_);
    ledger_ = std::exchange(other.ledger_, nullptr);
    device_ = std::exchange(other.device_, nullptr);
    stream_ = other.stream_;
    charge_ = std::move(other.charge_);
    note_ = std::move(other.note_);
  }
  return *this;
}

void Block::release() noexcept {
  if (data_ == nullptr) return;
  note_ = {};
  if (device_ != nullptr) {
    device_->release(data_, bytes_, stream_);
  } else {
    ledger_->remove_neighbour(data_);
    memory_.reset();
  }
  data_ = nullptr;
}

}  // namespace outrigger::memory

// SPDX-License-Identifier: Apache-2.0
#include "core/memory/ledger.h"

#include <algorithm>
#include <new>
#include <utility>

namespace outrigger::memory {

const char* name_of(Purpose purpose) {
  static constexpr std::array<const char*, kPurposes + 1> kNames{
      "published parameters",  "master weights",   "exp_avg",          "exp_avg_sq",
      "gradient accumulators", "gradient buckets", "gradient scratch", "checkpoint copies",
      "acquired copies",       "output gradients", "initial values",   "total"};
  return kNames.at(static_cast<size_t>(purpose));
}

void Ledger::charge(Purpose purpose, int64_t bytes, Space space, Touch touch) {
  const std::lock_guard lock(mutex_);
  auto& entries = entries_.at(static_cast<size_t>(space));
  Entry &own = entries.at(static_cast<size_t>(purpose)), &total = entries.back();
  own.resident += bytes;
  own.peak = std::max(own.peak, own.resident);
  total.resident += bytes;
  if (touch == Touch::later && !all_touched_) untouched_ = std::max<int64_t>(0, untouched_ + bytes);
  if (bytes > 0) note_total(space);
}

void Ledger::note_total(Space space) {
  Entry& total = entries_.at(static_cast<size_t>(space)).back();
  const int64_t there = total.resident - (space == Space::host ? untouched_ : 0);
  total.peak = std::max(total.peak, there);
}

std::array<Entry, kPurposes + 1> Ledger::entries(Space space) const {
  const std::lock_guard lock(mutex_);
  return entries_.at(static_cast<size_t>(space));
}

void Ledger::touch(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  untouched_ -= std::min(untouched_, bytes);
  note_total(Space::host);
}

void Ledger::touch_all() {
  const std::lock_guard lock(mutex_);
  untouched_ = 0;
  all_touched_ = true;
  note_total(Space::host);
}

int64_t Ledger::untouched() const {
  const std::lock_guard lock(mutex_);
  return untouched_;
}

void Ledger::add(const Locked& memory) {
  const std::lock_guard lock(mutex_);
  locked_.wanted += memory.wanted;
  locked_.bytes += memory.bytes;
  if (locked_.reason.empty()) locked_.reason = memory.reason;
}

void Ledger::remove(const Locked& memory) {
  const std::lock_guard lock(mutex_);
  locked_.wanted -= memory.wanted;
  locked_.bytes -= memory.bytes;
}

Ledger::Locked Ledger::locked() const {
  const std::lock_guard lock(mutex_);
  return locked_;
}

void Ledger::add_pages(const device::Neighbour& memory) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    pages_.push_back(memory);
  } catch (const std::bad_alloc&) {
  }
}

void Ledger::remove_pages(const std::byte* data) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(pages_, [data](const device::Neighbour& n) { return n.data == data; });
}

std::vector<device::Neighbour> Ledger::pages() const {
  const std::lock_guard lock(mutex_);
  return pages_;
}

void Ledger::add_neighbour(const device::Neighbour& neighbour) {
  if (neighbour.bytes < device::kLargeArray) return;
  const std::lock_guard lock(mutex_);
  try {
    neighbours_.push_back(neighbour);
  } catch (const std::bad_alloc&) {  // nothing depends on it but speed
  }
}

void Ledger::remove_neighbour(const std::byte* data) {
  const std::lock_guard lock(mutex_);
  std::erase_if(neighbours_, [data](const device::Neighbour& n) { return n.data == data; });
}

std::vector<device::Neighbour> Ledger::neighbours() const {
  const std::lock_guard lock(mutex_);
  return neighbours_;
}

Charge::Charge(Ledger& ledger, Purpose purpose, int64_t bytes, Space space, Touch touch)
    : ledger_(&ledger), purpose_(purpose), space_(space), touch_(touch), bytes_(bytes) {
  ledger.charge(purpose, bytes, space, touch);
}

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    release();
    ledger_ = std::exchange(other.ledger_, nullptr);
    purpose_ = other.purpose_;
    space_ = other.space_;
    touch_ = other.touch_;
    bytes_ = other.bytes_;
  }
  return *this;
}

void Charge::release() {
  if (ledger_ != nullptr) ledger_->charge(purpose_, -bytes_, space_, touch_);
  ledger_ = nullptr;
}

}  // namespace outrigger::memory

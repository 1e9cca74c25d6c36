// SPDX-License-Identifier: Apache-2.0
#include "core/memory/ledger.h"

#include <algorithm>
#include <new>
#include <utility>

namespace outrigger::memory {

const char* name_of(Purpose purpose) {
  static constexpr std::array<const char*, kPurposes + 1> kNames{"published parameters",
                                                                 "master weights",
                                                                 "exp_avg",
                                                                 "exp_avg_sq",
                                                                 "gradient accumulators",
                                                                 "gradient buckets",
                                                                 "gradient scratch",
                                                                 "acquired copies",
                                                                 "output gradients",
                                                                 "initial values",
                                                                 "total"};
  return kNames.at(static_cast<size_t>(purpose));
}

void Ledger::charge(Purpose purpose, int64_t bytes, Place place) {
  const std::lock_guard lock(mutex_);
  auto& entries = entries_.at(static_cast<size_t>(place));
  for (Entry* entry : {&entries.at(static_cast<size_t>(purpose)), &entries.back()}) {
    entry->resident += bytes;
    entry->peak = std::max(entry->peak, entry->resident);
  }
}

std::array<Entry, kPurposes + 1> Ledger::entries(Place place) const {
  const std::lock_guard lock(mutex_);
  return entries_.at(static_cast<size_t>(place));
}

void Ledger::charge_on_touch(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  on_touch_ += bytes;
}

int64_t Ledger::on_touch() const {
  const std::lock_guard lock(mutex_);
  return on_touch_;
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

void Ledger::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (auto& entries : entries_) {
    for (Entry& entry : entries) entry.peak = entry.resident;
  }
}

Charge::Charge(Ledger& ledger, Purpose purpose, int64_t bytes, Place place)
    : ledger_(&ledger), purpose_(purpose), place_(place), bytes_(bytes) {
  ledger.charge(purpose, bytes, place);
}

Charge& Charge::operator=(Charge&& other) noexcept {
  if (this != &other) {
    release();
    ledger_ = std::exchange(other.ledger_, nullptr);
    purpose_ = other.purpose_;
    place_ = other.place_;
    bytes_ = other.bytes_;
  }
  return *this;
}

void Charge::release() {
  if (ledger_ != nullptr) ledger_->charge(purpose_, -bytes_, place_);
  ledger_ = nullptr;
}

}  // namespace outrigger::memory

// SPDX-License-Identifier: Apache-2.0
// Who holds how many bytes for what. Every big block of an engine is charged here.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device/neighbours.h"

namespace outrigger::memory {

enum class Purpose : uint8_t {
  published,     // parameters in the compute dtype
  master,        // float32 master weights, where the published ones are not the master
  exp_avg,       // Adam's first moment
  exp_avg_sq,    // Adam's second moment
  accumulators,  // summed gradients
  buckets,       // gradients on their way to the reduction
  scratch,       // gradient slots and contributions that found their bucket's place taken; Muon's
                 // matrices
  snapshots,     // of states, while an asynchronous save writes them
  acquired,      // copies of parameters and states, while someone reads them
  outputs,       // scaled output gradients
  initial,       // values given before commit
  count
};
inline constexpr size_t kPurposes = static_cast<size_t>(Purpose::count);
[[nodiscard]] const char* name_of(Purpose purpose);
// Of what an update walks through.
[[nodiscard]] constexpr bool is_of_updates(Purpose purpose) {
  return purpose <= Purpose::accumulators;
}

// Of blocks that are made long before the first value is written into them.
[[nodiscard]] constexpr bool is_touched_later(Purpose purpose) {
  return purpose <= Purpose::snapshots;
}

// Whose memory it is: the host's, or that of the device that an engine is on.
enum class Space : uint8_t { host, device };

struct Entry {
  int64_t resident = 0;
  int64_t peak = 0;
};

// Of private memory the system hands pages out at their first touch. later: a block that lies
// untouched until its first value or the first pass; it is in its purpose's entry at once, and in
// the peak of the total from its touch on.
enum class Touch : uint8_t { now, later };

class Ledger {
 public:
  // Negative: give back.
  void charge(Purpose purpose, int64_t bytes, Space space = Space::host, Touch touch = Touch::now);
  // The last is the total.
  [[nodiscard]] std::array<Entry, kPurposes + 1> entries(Space space = Space::host) const;

  // So many bytes of what was charged for later are touched now.
  void touch(int64_t bytes);
  // All of it is, and whatever is charged from now on.
  void touch_all();
  [[nodiscard]] int64_t untouched() const;

  // Host memory for a device's copies: what there is, and how much of it is page-locked.
  struct Locked {
    int64_t wanted = 0, bytes = 0;
    std::string reason;  // why the first that is not locked is not
  };
  void add(const Locked& memory);
  void remove(const Locked& memory);
  [[nodiscard]] Locked locked() const;

  // Host memory with pages of its own, for reports on them. Of one that cannot be noted, they do
  // not tell.
  void add_pages(const device::Neighbour& memory) noexcept;
  void remove_pages(const std::byte* data) noexcept;
  [[nodiscard]] std::vector<device::Neighbour> pages() const;

  // The large arrays that updates walk through, among them the caller's: blocks keep apart from
  // them. Others are not kept.
  void add_neighbour(const device::Neighbour& neighbour);
  void remove_neighbour(const std::byte* data);
  [[nodiscard]] std::vector<device::Neighbour> neighbours() const;

 private:
  void note_total(Space space);  // with the mutex

  mutable std::mutex mutex_;
  std::vector<device::Neighbour> neighbours_, pages_;
  Locked locked_;
  std::array<std::array<Entry, kPurposes + 1>, 2> entries_{};  // by place
  int64_t untouched_ = 0;                                      // of the host's
  bool all_touched_ = false;
};

// Pages that the ledger's reports tell of while this lives.
class PageNote {
 public:
  PageNote() = default;
  PageNote(Ledger& ledger, const device::Neighbour& memory) : ledger_(&ledger), data_(memory.data) {
    ledger.add_pages(memory);
  }
  PageNote(PageNote&& other) noexcept { *this = static_cast<PageNote&&>(other); }
  PageNote& operator=(PageNote&& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(data_, other.data_);
    return *this;
  }
  PageNote(const PageNote&) = delete;
  PageNote& operator=(const PageNote&) = delete;
  ~PageNote() {
    if (ledger_ != nullptr) ledger_->remove_pages(data_);
  }

 private:
  Ledger* ledger_ = nullptr;
  const std::byte* data_ = nullptr;
};

// A charge that is given back on destruction.
class Charge {
 public:
  Charge() = default;
  Charge(Ledger& ledger, Purpose purpose, int64_t bytes, Space space = Space::host,
         Touch touch = Touch::now);
  Charge(Charge&& other) noexcept { *this = static_cast<Charge&&>(other); }
  Charge& operator=(Charge&& other) noexcept;
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { release(); }
  [[nodiscard]] int64_t bytes(Space space) const {
    return ledger_ != nullptr && space == space_ ? bytes_ : 0;
  }

 private:
  void release();
  Ledger* ledger_ = nullptr;
  Purpose purpose_ = Purpose::published;
  Space space_ = Space::host;
  Touch touch_ = Touch::now;
  int64_t bytes_ = 0;
};

}  // namespace outrigger::memory

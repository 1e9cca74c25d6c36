// SPDX-License-Identifier: Apache-2.0
#include "core/engine/new_weights.h"

#include <algorithm>
#include <chrono>

#include "core/base/error.h"
#include "core/comm/wait.h"
#include "core/context/interrupt.h"

namespace outrigger::engine {
namespace {

constexpr auto kLook = std::chrono::microseconds(100);  // at come_, of which nobody tells

}  // namespace

void NewWeights::begin(int64_t parameters) {
  const std::lock_guard lock(mutex_);
  missing_.assign(static_cast<size_t>(parameters), 0);
  come_ = nullptr;
  phase_ = Phase::sums;
}

void NewWeights::expect(std::span<const layout::Piece> pieces) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::sums) return;  // nobody asks
    for (const layout::Piece& piece : pieces) {
      missing_[static_cast<size_t>(piece.parameter)] += piece.count;
    }
    phase_ = Phase::updates;
  }
  changed_.notify_all();
}

void NewWeights::expect(std::span<const uint64_t> needs, std::function<uint64_t()> come) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::sums) return;  // nobody asks
    needs_ = needs;
    come_ = std::move(come);
    phase_ = Phase::updates;
  }
  changed_.notify_all();
}

bool NewWeights::is_awaited() const {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::updates;
}

void NewWeights::add(int64_t root, int64_t elements) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::updates) return;
    int64_t& missing = missing_[static_cast<size_t>(root)];
    missing -= elements;
    if (missing > 0) return;
  }
  changed_.notify_all();
}

void NewWeights::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    phase_ = Phase::over;
  }
  changed_.notify_all();
}

bool NewWeights::have(std::span<const int64_t> roots) const {
  if (phase_ != Phase::updates) return phase_ == Phase::over;
  if (come_) {
    const uint64_t come = come_();
    return std::ranges::all_of(
        roots, [&](int64_t root) { return needs_[static_cast<size_t>(root)] <= come; });
  }
  return std::ranges::all_of(
      roots, [this](int64_t root) { return missing_[static_cast<size_t>(root)] == 0; });
}

bool NewWeights::has(int64_t root) const {
  const std::lock_guard lock(mutex_);
  return have(std::span(&root, 1));
}

NewWeights::Step NewWeights::wait(std::span<const int64_t> roots, const char* call,
                                  const std::function<std::string()>& waiting) {
  std::unique_lock lock(mutex_);
  while (!have(roots)) {
    changed_.wait_for(lock, come_ ? kLook : std::chrono::microseconds(comm::kSlice));
    if (have(roots) || !interrupted(std::chrono::steady_clock::now())) continue;
    fail(OTR_E_INTERRUPTED,
         "{} was interrupted while it waited for the pending step{}. The step goes on: call it "
         "again",
         call, waiting());
  }
  return phase_ == Phase::over ? Step::is_over : Step::goes_on;
}

}  // namespace outrigger::engine

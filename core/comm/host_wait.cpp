// SPDX-License-Identifier: Apache-2.0
// HostCommunicator: waiting for the others, and what is said when it is in vain.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/comm/host.h"
#include "core/context/error.h"

namespace outrigger::comm {

bool HostCommunicator::all_reached(Counter counter, uint64_t target) const {
  for (int32_t r = 0; r < world_; r++) {
    if ((channel_.slot(r).*counter).load(std::memory_order_acquire) < target) return false;
  }
  return true;
}

Operation HostCommunicator::last_operation(int32_t rank) const {
  const auto& ring = channel_.slot(rank).ring;
  const Operation a = ring[0].load(), b = ring[1].load();
  return a.number > b.number ? a : b;
}

void HostCommunicator::wait_for_all(Counter counter, uint64_t target,
                                    std::string_view drain_label) {
  const auto ready = [&] { return all_reached(counter, target); };
  Clock::time_point deadline{};  // starts when the wait turns out to be one
  wait_until(channel_.bell, spin_, ready, [&](Clock::time_point now) {
    if (deadline == Clock::time_point{}) deadline = deadline_in(member_->timeout);
    look_around(counter, target, drain_label, now >= deadline);
  });
}

void HostCommunicator::look_around(Counter counter, uint64_t target, std::string_view drain_label,
                                   bool overdue) {
  member_->failures.check();
  if (cancelled_) fail(OTR_E_ABORTED, "{} was cancelled on rank {}", current_.text(), rank_);
  const bool drains = counter == &Slot::drained;
  const auto waited_in = [&] {
    return drains
               ? fmt::format("wait_drained '{}' for operation {} of '{}'", drain_label, target,
                             name_)
               : fmt::format("{} (operation {} of '{}')", current_.text(), current_.number, name_);
  };
  const auto last_of = [&](int32_t r) {
    const Operation last = last_operation(r);
    return last.number == 0 ? std::string("has begun no operation here")
                            : fmt::format("last began operation {}, {}", last.number, last.text());
  };

  int32_t first_missing = -1, missing = 0;
  std::string names;
  for (int32_t r = 0; r < world_; r++) {
    Slot& slot = channel_.slot(r);
    const auto reached = [&] { return (slot.*counter).load(std::memory_order_acquire) >= target; };
    if (reached()) continue;
    const bool gone = slot.gone.load(std::memory_order_acquire) != 0;
    const bool ended = !gone && member_->liveness->ended(r);
    if (gone || ended) {
      if (reached()) continue;  // the last thing it did
      fail_job(
          OTR_E_PEER_DEAD, r,
          fmt::format(
              "rank {} (process {}) {} while rank {} waited for it in {}; it {}. The job cannot "
              "go on: start all ranks again, from the last checkpoint",
              r, member_->job.member(r).process.load(std::memory_order_relaxed),
              gone ? "left, destroying its communicator," : "ended", rank_, waited_in(),
              last_of(r)));
    }
    if (!overdue) continue;
    constexpr int32_t kNamed = 4;
    if (missing++ == 0) first_missing = r;
    if (missing <= kNamed)
      names += fmt::format("{}rank {} {}", missing > 1 ? "; " : "", r, last_of(r));
    if (missing == kNamed + 1) names += "; and more";
  }
  if (missing == 0) return;
  fail_job(
      OTR_E_TIMEOUT, first_missing,
      fmt::format(
          "{} of {} ranks did not come to {} within {} s of rank {}: {}. Alive but silent: look "
          "what holds them up, or raise the timeout",
          missing, world_, waited_in(), member_->timeout, rank_, names));
}

void HostCommunicator::cancel() noexcept {
  cancelled_ = true;
  ring(channel_.bell);
  wake(channel_.bell);
}

void HostCommunicator::fail_job(int32_t status, int32_t culprit, std::string_view text) {
  member_->failures.post(status, culprit, current_.number, text);
  ring(channel_.bell);
  wake(channel_.bell);
  member_->failures.check();
  fail(OTR_E_INTERNAL, "a failure was posted and is not there: {}", text);
}

}  // namespace outrigger::comm

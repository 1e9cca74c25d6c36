// SPDX-License-Identifier: Apache-2.0
// HostCommunicator: waiting for the others, and what is said when it is in vain.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/host.h"
#include "core/comm/watch.h"
#include "core/comm/watching.h"
#include "core/context/interrupt.h"

namespace outrigger::comm {

bool HostCommunicator::all_reached(Counter counter, uint64_t target) const {
  for (int32_t r = 0; r < world_; r++) {
    if ((channel_.slot(r).*counter).load(std::memory_order_seq_cst) < target) return false;
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
    look_around(counter, target, drain_label, now, now >= deadline);
  });
}

std::string HostCommunicator::describe(const std::vector<int32_t>& ranks) const {
  constexpr size_t kNamed = 4;
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kNamed; i++) {
    const Operation last = last_operation(ranks[i]);
    text += format_text("{}rank {} {}", i > 0 ? "; " : "", ranks[i],
                        last.number == 0
                            ? "has begun no operation here"
                            : format_text("last began operation {}, {}", last.number, last.text()));
  }
  return ranks.size() > kNamed ? text + "; and more" : text;
}

std::string HostCommunicator::waiting() const {
  const uint64_t step = my_slot().arrived.load(std::memory_order_acquire);
  std::vector<int32_t> missing;
  for (int32_t r = 0; r < world_; r++) {
    if (channel_.slot(r).arrived.load(std::memory_order_acquire) < step) missing.push_back(r);
  }
  if (missing.empty()) return {};
  const Operation mine = last_operation(rank_);
  return format_text("{} (operation {} of '{}') waits: {}", mine.text(), mine.number, name_,
                     describe(missing));
}

void HostCommunicator::look_around(Counter counter, uint64_t target, std::string_view drain_label,
                                   Clock::time_point now, bool overdue) {
  check_failures();
  Watching::check();
  if (cancelled_) fail(OTR_E_ABORTED, "{} was cancelled on rank {}", current_.text(), rank_);
  const auto waited_in = [&] {
    return counter == &Slot::drained
               ? format_text("wait_drained '{}' for operation {} of '{}'", drain_label, target,
                             name_)
               : format_text("{} (operation {} of '{}')", current_.text(), current_.number, name_);
  };

  const auto why = [&](int32_t r, std::string_view did, std::string_view consequence) {
    return format_text("rank {} (process {}) {} while rank {} waited for it in {}; {}. {}", r,
                       member_->job.member(r).process.load(std::memory_order_relaxed), did, rank_,
                       waited_in(), describe({r}), consequence);
  };
  std::vector<int32_t> missing;
  std::optional<std::pair<int32_t, Gone>> goner;  // the first; better one that went by itself
  for (int32_t r = 0; r < world_; r++) {
    Slot& slot = channel_.slot(r);
    const auto reached = [&] { return (slot.*counter).load(std::memory_order_acquire) >= target; };
    if (reached()) continue;
    const Gone gone = Gone::of(slot.gone.load(std::memory_order_acquire));
    const bool ended = gone.way == Gone::no && member_->liveness->ended(r);
    if ((gone.way != Gone::no || ended) && reached()) continue;  // the last thing it did
    if (ended) {
      fail_job(
          OTR_E_PEER_DEAD, r,
          why(r, "ended", "The job cannot go on: start all ranks again, from the last checkpoint"));
    }
    if (gone.way != Gone::no &&
        (!goner || (goner->second.culprit != goner->first && gone.culprit == r)))
      goner = {r, gone};
    missing.push_back(r);
  }
  if (goner) {
    const auto [r, gone] = *goner;
    const char* did = gone.way == Gone::left ? "left, destroying its communicator,"
                                             : "gave it up (its engine failed or was destroyed)";
    const std::string cause =
        gone.culprit == r ? ""
        : gone.culprit < 0
            ? format_text("It went because of rank {} of all. ", rank_outside(gone.culprit))
            : format_text("It went because of rank {}. ", gone.culprit);
    fail_here(gone.culprit, why(r, did, cause + "What was made on this communicator cannot go on"));
  }
  if (missing.empty()) return;
  if (overdue) {
    // Who waits elsewhere is late because of another one.
    std::ranges::stable_partition(missing, [&](int32_t r) { return !is_elsewhere(r); });
    fail_job(
        OTR_E_TIMEOUT, missing.front(),
        format_text(
            "{} of {} ranks did not come to {} within {} s of rank {}: {}. Alive but silent: look "
            "what holds them up, or raise the timeout",
            missing.size(), world_, waited_in(), member_->timeout, rank_, describe(missing)));
  }
  if (interrupted(now)) {
    interrupt(counter, format_text("{} was interrupted by the host of rank {} while it waited: {}",
                                   waited_in(), rank_, describe(missing)));
  }
}

void HostCommunicator::watch(const std::function<bool()>& ready, std::string_view label) {
  const Clock::time_point deadline = deadline_in(member_->timeout);
  const uint64_t mine = ++watches_;
  watch_until(ready, [&](Clock::time_point now) {
    check_failures();
    Watching::check();
    if (cancelled_) fail(OTR_E_ABORTED, "'{}' was cancelled on rank {}", label, rank_);
    for (int32_t r = 0; r < world_; ++r) {
      if (r == rank_) continue;
      const auto why = [&](std::string_view did, std::string_view consequence) {
        return format_text(
            "rank {} (process {}) {} while the devices were at '{}' on rank {}; {}. "
            "{}",
            r, member_->job.member(r).process.load(std::memory_order_relaxed), did, label, rank_,
            describe({r}), consequence);
      };
      const Slot& slot = channel_.slot(r);
      const Gone gone = Gone::of(slot.gone.load(std::memory_order_acquire));
      const bool ended = gone.way == Gone::no && member_->liveness->ended(r);
      if (gone.way == Gone::no && !ended) continue;
      // Its device was over with this, so this rank's will be, too.
      if (slot.watched.load(std::memory_order_acquire) >= mine) continue;
      if (ended) {
        fail_job(
            OTR_E_PEER_DEAD, r,
            why("ended", "The job cannot go on: start all ranks again, from the last checkpoint"));
      }
      fail_here(gone.culprit,
                why("left or gave it up", "What was made on this communicator cannot go on"));
    }
    if (now >= deadline) {
      fail_job(OTR_E_TIMEOUT, rank_,
               format_text("the devices were not over with '{}' within {} s of rank {}, although "
                           "all ranks had come to it. Look what holds up a device or the "
                           "connections between them, or raise the timeout",
                           label, member_->timeout, rank_));
    }
    if (interrupted(now)) {
      interrupt(&Slot::drained,
                format_text("'{}' was interrupted by the host of rank {} while devices were at it",
                            label, rank_));
    }
  });
  my_slot().watched.store(mine, std::memory_order_release);
}

void HostCommunicator::interrupt(Counter counter, const std::string& text) {
  if (counter == &Slot::arrived && meeting_) {
    interrupted_ = true;
    fail(OTR_E_INTERRUPTED, "{}. Make the call again to wait on", text);
  }
  member_->failures.post(OTR_E_ABORTED, rank_, current_.number,
                         text + ". Ranks were moving data: the job cannot go on");
  ring(channel_.bell);
  fail(OTR_E_INTERRUPTED, "{}. Ranks were moving data: the job cannot go on", text);
}

void HostCommunicator::cancel() noexcept {
  cancelled_ = true;
  ring(channel_.bell);
}

void HostCommunicator::fail_here(int32_t culprit, const std::string& text) {
  post(Error(OTR_E_PEER_DEAD, text, culprit));
  require_usable();
  fail(OTR_E_INTERNAL, "a failure was posted and is not there: {}", text);
}

void HostCommunicator::fail_job(int32_t status, int32_t culprit, std::string_view text) {
  member_->failures.post(status, culprit, current_.number, text);
  ring(channel_.bell);
  check_failures();
  fail(OTR_E_INTERNAL, "a failure was posted and is not there: {}", text);
}

}  // namespace outrigger::comm

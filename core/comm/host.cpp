// SPDX-License-Identifier: Apache-2.0
// HostCommunicator: the collectives.
#include "core/comm/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/comm/copy.h"
#include "core/comm/host_window.h"
#include "core/comm/identity.h"

namespace outrigger::comm {
HostCommunicator::HostCommunicator(std::shared_ptr<Member> member, std::shared_ptr<Region> region,
                                   ChannelBlock& channel, std::string_view name)
    : member_(std::move(member)),
      region_(std::move(region)),
      channel_(channel),
      rank_(member_->rank),
      world_(member_->world),
      name_(name),
      here_(
          channel.failed_by,
          [this](int32_t r) -> FailureRecord& { return channel_.failure(world_, r); }, world_,
          rank_),
      spin_(member_->spin),
      slices_(static_cast<size_t>(world_)) {}

HostCommunicator::~HostCommunicator() { go({Gone::left, rank_}); }

uint64_t HostCommunicator::identity() const { return child_of(member_->job.identity, channel_.id); }

void HostCommunicator::give_up(int32_t culprit) noexcept { go({Gone::gave_up, culprit}); }

void HostCommunicator::go(Gone why) noexcept {
  if (current_process() != member_->process) return;
  uint64_t none = 0;
  my_slot().gone.compare_exchange_strong(none, why.packed(), std::memory_order_release);
  ring(channel_.bell);
}

// What has ended this channel alone keeps its text when the job fails, too.
void HostCommunicator::check_failures() const {
  here_.check();
  member_->failures.check();
}

void HostCommunicator::require_usable() const {
  require_process(member_->process);
  check_failures();
  if (cancelled_) fail(OTR_E_ABORTED, "'{}' was cancelled on rank {}", name_, rank_);
}

void HostCommunicator::check() const { require_usable(); }

void HostCommunicator::set_elsewhere(bool elsewhere) noexcept {
  if (current_process() != member_->process) return;
  my_slot().elsewhere.store(elsewhere ? 1 : 0, std::memory_order_relaxed);
}

bool HostCommunicator::is_elsewhere(int32_t rank) const {
  return channel_.slot(rank).elsewhere.load(std::memory_order_relaxed) != 0;
}

// The format was checked when it was compiled.
// NOLINTNEXTLINE(bugprone-exception-escape)
void HostCommunicator::abort(const Error* error, std::string_view reason) noexcept {
  if (current_process() != member_->process) return;
  const Operation last = last_operation(rank_);
  std::array<char, sizeof(FailureRecord::text)> text;
  const auto end = fmt::format_to_n(text.data(), text.size(),
                                    "rank {} aborted the job after operation {} of '{}': {}", rank_,
                                    last.number, name_, reason.empty() ? "no reason given" : reason)
                       .size;
  member_->failures.post(OTR_E_ABORTED, rank_, last.number,
                         {text.data(), std::min(end, text.size())}, error);
  ring(channel_.bell);
}

void HostCommunicator::post(const Error& error) noexcept {
  if (current_process() != member_->process) return;
  const int32_t culprit = error.culprit() == -1 ? rank_ : error.culprit();
  if (member_->failures.is_set()) return;
  here_.post(error.status(), culprit, last_operation(rank_).number, error.what());
  ring(channel_.bell);
}

// ---- Steps --------------------------------------------------------------------------------------

void HostCommunicator::begin(OperationKind kind, uint64_t bytes, std::string_view label,
                             int32_t root, uint64_t offset, RegionId window) {
  const auto fill = [&](Operation& call) {
    call.kind = kind;
    call.root = root;
    call.bytes = bytes;
    call.offset = offset;
    call.window[0] = window.channel;
    call.window[1] = window.operation;
    call.set_label(label);
  };
  meeting_ = true;
  if (interrupted_) {
    Operation call;
    fill(call);
    if (!call.same_call(current_)) {
      fail(OTR_E_STATE,
           "{} was interrupted on rank {} while it waited, and {} is called: make the interrupted "
           "call again first",
           current_.text(), rank_, call.text());
    }
    wait_for_all(&Slot::arrived, step_, {});
    interrupted_ = false;
  } else {
    current_.number++;
    fill(current_);
    // Two places are enough: whoever is one operation ahead cannot finish it without us.
    my_slot().ring[current_.number & 1].store(current_);
    digest_ = current_.digest();
    my_slot().calls[current_.number & 1].store(digest_, std::memory_order_relaxed);
    step();
  }
  meeting_ = false;
  compare_calls();
}

void HostCommunicator::step() {
  step_++;
  // The lines of those who came earlier are fetched while this rank waits for its own.
  for (int32_t r = 0; r < world_; r++) __builtin_prefetch(&channel_.slot(r));
  my_slot().arrived.store(step_, std::memory_order_seq_cst);
  if (all_reached(&Slot::arrived, step_)) {
    ring_sleepers(channel_.bell);
  } else {
    wait_for_all(&Slot::arrived, step_, {});
  }
}

void HostCommunicator::compare_calls() {
  const size_t place = current_.number & 1;
  bool equal = true;
  for (int32_t r = 0; r < world_; r++) {
    equal = equal && channel_.slot(r).calls[place].load(std::memory_order_relaxed) == digest_;
  }
  if (equal) [[likely]]
    return;

  // Every rank names the same pair: rank 0, and the first that differs from it.
  const auto call_of = [&](int32_t r) { return channel_.slot(r).ring[place].load(); };
  const Operation first = call_of(0);
  int32_t other = 1;
  while (other < world_ - 1 && call_of(other).same_call(first)) other++;
  fail_job(OTR_E_MISMATCH, other,
           disagreement(current_.number, name_, first, other, call_of(other)));
}

// ---- Operations
// -----------------------------------------------------------------------------------

void HostCommunicator::barrier(std::string_view label) {
  require_usable();
  begin(OperationKind::barrier, 0, label);
}

void HostCommunicator::broadcast(std::span<std::byte> data, int32_t root, std::string_view label) {
  require_usable();
  require_root(label, root, world_);
  const size_t chunk = world_ == 1 ? data.size() : ChannelBlock::staging_bytes(world_);
  size_t done = 0;
  do {
    const size_t n = std::min(chunk, data.size() - done);
    const bool sends = rank_ == root && world_ > 1;
    if (sends && !interrupted_) copy_bytes(staging(root, step_ + 1), data.data() + done, n);
    if (done == 0) {
      begin(OperationKind::broadcast, data.size(), label, root);
    } else {
      step();
    }
    if (rank_ != root) copy_bytes(data.data() + done, staging(root, step_), n);
    done += n;
  } while (done < data.size());
}

const HostWindow& HostCommunicator::checked(const Window& window, size_t offset, size_t slice_bytes,
                                            std::string_view label) const {
  const auto* own = dynamic_cast<const HostWindow*>(&window);
  if (own == nullptr || own->job() != &member_->job || own->kind() != WindowKind::per_rank) {
    fail(OTR_E_ARGUMENT, "'{}' needs a per_rank window that this job's ranks created", label);
  }
  if (offset > own->bytes() ||
      slice_bytes > (own->bytes() - offset) / static_cast<size_t>(world_)) {
    fail(OTR_E_ARGUMENT, "'{}': {} slices of {} bytes at offset {} exceed the window's {} bytes",
         label, world_, slice_bytes, offset, own->bytes());
  }
  return *own;
}

std::span<const void* const> HostCommunicator::exchange(const Window& window, size_t offset,
                                                        size_t slice_bytes,
                                                        std::string_view label) {
  require_usable();
  const HostWindow& own = checked(window, offset, slice_bytes, label);
  begin(OperationKind::reduce, slice_bytes, label, 0, offset, own.id());
  const size_t mine = offset + static_cast<size_t>(rank_) * slice_bytes;
  for (int32_t r = 0; r < world_; r++) slices_[static_cast<size_t>(r)] = own.block(r) + mine;
  return slices_;
}

uint64_t HostCommunicator::end_exchange() {
  my_slot().drained.store(current_.number, std::memory_order_seq_cst);
  if (is_drained(current_.number)) ring_sleepers(channel_.bell);
  return current_.number;
}

bool HostCommunicator::is_drained(uint64_t ticket) const {
  return current_process() == member_->process && all_reached(&Slot::drained, ticket);
}

void HostCommunicator::wait_drained(uint64_t ticket, std::string_view label) {
  if (is_drained(ticket)) return;
  require_usable();
  if (ticket > my_slot().drained.load(std::memory_order_relaxed)) {
    fail(OTR_E_ARGUMENT, "wait_drained '{}': no reduction has returned ticket {} yet", label,
         ticket);
  }
  wait_for_all(&Slot::drained, ticket, label);
}

void HostCommunicator::all_gather_window(Window& window, size_t offset, size_t slice_bytes,
                                         std::string_view label) {
  require_usable();
  const HostWindow& own = checked(window, offset, slice_bytes, label);
  begin(OperationKind::all_gather_window, slice_bytes, label, 0, offset, own.id());
  for (int32_t i = 1; i < world_; i++) {  // each rank starts with another peer
    const int32_t r = (rank_ + i) % world_;
    const size_t slice = offset + static_cast<size_t>(r) * slice_bytes;
    copy_bytes(own.block(rank_) + slice, own.block(r) + slice, slice_bytes);
  }
  step();  // nobody still reads this rank's slice
}

}  // namespace outrigger::comm

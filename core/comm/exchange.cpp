// SPDX-License-Identifier: Apache-2.0
// How one operation runs over a communicator that blocks.
#include "core/comm/exchange.h"

#include <utility>

#include "core/base/error.h"
#include "core/comm/exchange_impl.h"
#include "core/comm/wait.h"
#include "core/context/interrupt.h"

namespace outrigger::comm {
namespace {

// Runs the caller's code, once.
void run_once(std::function<void()>& code) {
  if (code) code();
  code = nullptr;
}

std::string_view label_of(const AnyOperation& operation) {
  return std::visit([](const auto& each) { return std::string_view(each.label); }, operation);
}

// Of the values that the ranks exchange.
int64_t bytes_of(const AnyOperation& operation, const Group& group) {
  if (group.size() == 1) return 0;
  if (const auto* sum = std::get_if<Reduction>(&operation)) {
    return static_cast<int64_t>(sum->reduce.slice_bytes) * group.slices();
  }
  if (const auto* whole = std::get_if<WindowGather>(&operation)) {
    return static_cast<int64_t>(whole->slice_bytes) * group.slices();
  }
  int64_t bytes = 0;
  if (const auto* parts = std::get_if<PartsGather>(&operation)) {
    for (const Part& part : parts->parts) bytes += static_cast<int64_t>(part.bytes.size());
  }
  return bytes;
}

}  // namespace

ChannelExchange::ChannelExchange(std::unique_ptr<Communicator> channel, const char* what,
                                 const Observed& observed)
    : channel_(std::move(channel)), what_(what), observed_(observed) {}

bool ChannelExchange::is_drained(Ticket ticket) const {
  if (ticket <= drained_.load(std::memory_order_acquire)) return true;
  if (!is_done(ticket)) return false;
  const std::lock_guard lock(mutex_);
  forget_drained();
  return ticket <= drained_;
}

void ChannelExchange::run(AnyOperation& operation) {
  const Ticket ticket = done_.load(std::memory_order_relaxed) + 1;
  {
    observe::Span span(observed_.timeline, observed_.phase, label_of(operation));
    span.set_bytes(bytes_of(operation, *channel_));
    std::visit([&](auto& each) { run(ticket, each); }, operation);
  }
  done_.store(ticket, std::memory_order_release);
}

void ChannelExchange::run(Ticket ticket, Reduction& operation) {
  auto& [reduce, label, prepare, reuse] = operation;
  uint64_t& last = last_at_[{&reduce.window, reduce.offset}];
  if (prepare && last != 0) channel_->wait_drained(last, reuse.empty() ? label : reuse);
  run_once(prepare);
  if (reduce.norm != nullptr) *reduce.norm = {};
  last = channel_->reduce(reduce, label);
  const std::lock_guard lock(mutex_);
  forget_drained();
  given_.push_back({ticket, last});
}

void ChannelExchange::run(Ticket /*ticket*/, WindowGather& operation) {
  channel_->all_gather_window(operation.window, operation.offset, operation.slice_bytes,
                              operation.label);
  if (operation.then) operation.then();
}

void ChannelExchange::run(Ticket /*ticket*/, PartsGather& operation) {
  run_once(operation.prepare);
  channel_->all_gather_parts(operation.parts, operation.label);
  if (operation.then) operation.then();
}

void ChannelExchange::run(Ticket ticket, Combination& operation) {
  if (operation.merge) {
    run_once(operation.prepare);
    channel_->combine(operation.value, operation.merge, operation.label);
    operation.merge = nullptr;
  }
  if (operation.then) {
    for (Reduction& next : operation.then()) following_.push_back(std::move(next));
    operation.then = nullptr;
  }
  for (; !following_.empty(); following_.pop_front()) run(ticket, following_.front());
}

// Under mutex_. Slices are drained in the order in which they were given.
void ChannelExchange::forget_drained() const {
  while (!given_.empty() && channel_->is_drained(given_.front().number)) given_.pop_front();
  const Ticket drained =
      given_.empty() ? done_.load(std::memory_order_acquire) : given_.front().ticket - 1;
  drained_.store(drained, std::memory_order_release);
}

void ChannelExchange::ask_host() const {
  if (!interrupted(Clock::now())) return;
  fail(OTR_E_INTERRUPTED,
       "the wait for {} was interrupted by the host of rank {}: {}. Make the call again to wait on",
       what_, channel_->rank(), channel_->waiting());
}

void ChannelExchange::fail_stopped() const {
  fail(OTR_E_ABORTED, "{} was stopped on rank {}", what_, channel_->rank());
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "core/comm/exchange.h"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/base/serial_worker.h"
#include "core/comm/wait.h"
#include "core/context/interrupt.h"

namespace outrigger::comm {
namespace {

class BlockingExchange final : public Exchange {
 public:
  BlockingExchange(std::unique_ptr<Communicator> channel, const char* what)
      : channel_(std::move(channel)), what_(what), worker_(what) {}
  ~BlockingExchange() override { end(); }

  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    return channel_->create_window(kind, bytes, label);
  }
  void start() override { worker_.start(); }

  Ticket begin(Reduction operation) override { return add(std::move(operation)); }
  Ticket begin(WindowGather operation) override { return add(std::move(operation)); }
  Ticket begin(PartsGather operation) override { return add(std::move(operation)); }
  Ticket begin(Combination operation) override { return add(std::move(operation)); }

  bool is_done(Ticket ticket) const override {
    return ticket <= done_.load(std::memory_order_acquire);
  }
  bool is_drained(Ticket ticket) const override {
    if (ticket <= drained_.load(std::memory_order_acquire)) return true;
    if (!is_done(ticket)) return false;
    const std::lock_guard lock(mutex_);
    forget_drained();
    return ticket <= drained_;
  }
  void wait(Ticket ticket) override {
    while (!worker_.wait_for(ticket, kSlice)) {
      if (stopped_) fail(OTR_E_ABORTED, "{} was stopped on rank {}", what_, channel_->rank());
      if (interrupted(Clock::now())) {
        fail(OTR_E_INTERRUPTED,
             "the wait for {} was interrupted by the host of rank {}: {}. Make the call again to "
             "wait on",
             what_, channel_->rank(), channel_->waiting());
      }
    }
  }
  void wait_all() override { wait(worker_.added()); }

  void check() override { worker_.check(); }
  void give_up(int32_t culprit) noexcept override { channel_->give_up(culprit); }
  void cancel() noexcept override { channel_->cancel(); }
  void stop() noexcept override { end(); }

 private:
  // Slices that other ranks may still be reading.
  struct Given {
    Ticket ticket;
    uint64_t number;  // the channel's
  };

  template <typename Operation>
  Ticket add(Operation operation) {
    return worker_.add([this, operation = std::move(operation)] {
      const Ticket ticket = done_.load(std::memory_order_relaxed) + 1;
      run(ticket, operation);
      done_.store(ticket, std::memory_order_release);
    });
  }
  void end() noexcept {
    stopped_ = true;
    worker_.stop([this] { cancel(); });
  }

  // ---- on the thread
  void run(Ticket ticket, const Reduction& operation) {
    const auto& [reduce, label, prepare, reuse] = operation;
    uint64_t& last = last_at_[{&reduce.window, reduce.offset}];
    if (prepare) {
      if (last != 0) channel_->wait_drained(last, reuse.empty() ? label : reuse);
      prepare();
    }
    if (reduce.norm != nullptr) *reduce.norm = {};
    last = channel_->reduce(reduce, label);
    const std::lock_guard lock(mutex_);
    forget_drained();
    given_.push_back({ticket, last});
  }
  void run(Ticket /*ticket*/, const WindowGather& operation) {
    channel_->all_gather_window(operation.window, operation.offset, operation.slice_bytes,
                                operation.label);
  }
  void run(Ticket /*ticket*/, const PartsGather& operation) {
    if (operation.prepare) operation.prepare();
    channel_->all_gather_parts(operation.parts, operation.label);
    if (operation.then) operation.then();
  }
  void run(Ticket ticket, const Combination& operation) {
    if (operation.prepare) operation.prepare();
    channel_->combine(operation.value, operation.merge, operation.label);
    if (!operation.then) return;
    for (const Reduction& next : operation.then()) run(ticket, next);
  }

  // Under mutex_. Slices are drained in the order in which they were given.
  void forget_drained() const {
    while (!given_.empty() && channel_->is_drained(given_.front().number)) given_.pop_front();
    const Ticket drained =
        given_.empty() ? done_.load(std::memory_order_acquire) : given_.front().ticket - 1;
    drained_.store(drained, std::memory_order_release);
  }

  const std::unique_ptr<Communicator> channel_;
  const char* const what_;
  std::atomic<bool> stopped_{false};
  std::atomic<Ticket> done_{0};
  std::map<std::pair<const Window*, size_t>, uint64_t>
      last_at_;               // the thread's: what it gave where
  mutable std::mutex mutex_;  // guards the next
  mutable std::deque<Given> given_;
  mutable std::atomic<Ticket> drained_{0};  // written under mutex_
  SerialWorker worker_;
};

}  // namespace

std::unique_ptr<Exchange> make_blocking_exchange(std::unique_ptr<Communicator> channel,
                                                 const char* what) {
  return std::make_unique<BlockingExchange>(std::move(channel), what);
}

}  // namespace outrigger::comm

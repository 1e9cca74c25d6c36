// SPDX-License-Identifier: Apache-2.0
// What exchanges over a communicator that blocks have in common: all but who runs an operation.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>

#include "core/comm/exchange.h"

namespace outrigger::comm {

using AnyOperation = std::variant<Reduction, WindowGather, PartsGather, Combination>;

class ChannelExchange : public Exchange {
 public:
  ChannelExchange(std::unique_ptr<Communicator> channel, const char* what,
                  const Observed& observed);

  std::shared_ptr<Window> create_window(WindowKind kind, size_t bytes,
                                        std::string_view label) override {
    return channel_->create_window(kind, bytes, label);
  }

  Ticket begin(Reduction operation) override { return add(std::move(operation)); }
  Ticket begin(WindowGather operation) override { return add(std::move(operation)); }
  Ticket begin(PartsGather operation) override { return add(std::move(operation)); }
  Ticket begin(Combination operation) override { return add(std::move(operation)); }

  bool is_done(Ticket ticket) const override {
    return ticket <= done_.load(std::memory_order_acquire);
  }
  bool is_drained(Ticket ticket) const override;

  void give_up(int32_t culprit) noexcept override { channel_->give_up(culprit); }
  void cancel() noexcept override { channel_->cancel(); }

 protected:
  virtual Ticket add(AnyOperation operation) = 0;

  // The first operation that has not run; one thread at a time. After OTR_E_INTERRUPTED it goes on
  // with the call that was interrupted when it is given the same operation again.
  void run(AnyOperation& operation);

  // For a wait while another thread runs what is waited for: throws OTR_E_INTERRUPTED if the host
  // wants it to end.
  void ask_host() const;
  [[noreturn]] void fail_stopped() const;
  // Throws what the channel has failed with.
  void check_channel() const { channel_->check(); }

 private:
  // Slices that other ranks may still be reading.
  struct Given {
    Ticket ticket;
    uint64_t number;  // the channel's
  };

  // What has been done is taken out of the operation.
  void run(Ticket ticket, Reduction& operation);
  void run(Ticket ticket, WindowGather& operation);
  void run(Ticket ticket, PartsGather& operation);
  void run(Ticket ticket, Combination& operation);
  void forget_drained() const;

  const std::unique_ptr<Communicator> channel_;
  const char* const what_;
  const Observed observed_;
  std::atomic<Ticket> done_{0};
  // Of who runs operations: what was given last where, and what a Combination has led to.
  std::map<std::pair<const Window*, size_t>, uint64_t> last_at_;
  std::deque<Reduction> following_;
  mutable std::mutex mutex_;  // guards the next
  mutable std::deque<Given> given_;
  mutable std::atomic<Ticket> drained_{0};  // written under mutex_
};

}  // namespace outrigger::comm

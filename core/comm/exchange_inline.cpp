// SPDX-License-Identifier: Apache-2.0
// An exchange whose operations run in the threads that wait for them.
#include <condition_variable>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/comm/exchange_impl.h"
#include "core/comm/wait.h"

namespace outrigger::comm {
namespace {

class InlineExchange final : public ChannelExchange {
 public:
  using ChannelExchange::ChannelExchange;
  ~InlineExchange() override { end(); }

  void start() override {}
  void wait(Ticket ticket) override {
    std::unique_lock lock(mutex_);
    wait_locked(lock, ticket);
  }
  void wait_all() override {
    std::unique_lock lock(mutex_);
    wait_locked(lock, begun_);
  }
  void check() override {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }
  void stop() noexcept override { end(); }

 private:
  using Lock = std::unique_lock<std::mutex>;

  Ticket add(AnyOperation operation) override {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
    return ++begun_;
  }

  void wait_locked(Lock& lock, Ticket ticket) {
    while (!is_done(ticket)) {
      if (failure_ != nullptr) std::rethrow_exception(failure_);
      if (stopped_) fail_stopped();
      if (!is_running_ && (current_ || !queue_.empty())) {
        run_next(lock);
        continue;
      }
      turn_.wait_for(lock, kSlice);
      if (is_done(ticket)) return;
      lock.unlock();  // the host may ask this exchange something
      ask_host();
      lock.lock();
    }
  }

  // What is interrupted stays the next.
  void run_next(Lock& lock) {
    if (!current_) take_first();
    is_running_ = true;
    lock.unlock();
    std::exception_ptr thrown, failure;
    try {
      run(*current_);
    } catch (const Error& error) {
      thrown = std::current_exception();
      failure = error.status() == OTR_E_INTERRUPTED ? failure_of_channel() : thrown;
    } catch (...) {
      thrown = failure = std::current_exception();
    }
    lock.lock();
    is_running_ = false;
    if (thrown == nullptr) current_.reset();
    failure_ = failure;
    turn_.notify_all();
    if (thrown != nullptr) std::rethrow_exception(thrown);
  }

  // The queue's memory is used again.
  void take_first() {
    current_.emplace(std::move(queue_[taken_++]));
    if (taken_ < queue_.size()) return;
    queue_.clear();
    taken_ = 0;
  }

  // After an interrupt: none, unless ranks were moving data.
  [[nodiscard]] std::exception_ptr failure_of_channel() const {
    try {
      check_channel();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  void end() noexcept {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    cancel();
    Lock lock(mutex_);
    turn_.wait(lock, [this] { return !is_running_; });
    current_.reset();
    queue_.clear();
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable turn_;
  std::vector<AnyOperation> queue_;
  size_t taken_ = 0;                     // of the queue, from its front
  std::optional<AnyOperation> current_;  // taken, not done; of who runs it while one does
  Ticket begun_ = 0;
  bool is_running_ = false, stopped_ = false;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<Exchange> make_inline_exchange(std::unique_ptr<Communicator> channel,
                                               const char* what, const Observed& observed) {
  return std::make_unique<InlineExchange>(std::move(channel), what, observed);
}

}  // namespace outrigger::comm

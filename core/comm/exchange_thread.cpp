// SPDX-License-Identifier: Apache-2.0
// An exchange whose operations run on a thread of its own.
#include <atomic>
#include <utility>

#include "core/base/serial_worker.h"
#include "core/comm/exchange_impl.h"
#include "core/comm/wait.h"

namespace outrigger::comm {
namespace {

class BlockingExchange final : public ChannelExchange {
 public:
  BlockingExchange(std::unique_ptr<Communicator> channel, const char* what,
                   const Observed& observed)
      : ChannelExchange(std::move(channel), what, observed), worker_(what) {}
  ~BlockingExchange() override { end(); }

  void start() override { worker_.start(); }
  void wait(Ticket ticket) override {
    while (!worker_.wait_for(ticket, kSlice)) {
      if (stopped_) fail_stopped();
      ask_host();
    }
  }
  void wait_all() override { wait(worker_.added()); }
  void check() override { worker_.check(); }
  void stop() noexcept override { end(); }

 private:
  Ticket add(AnyOperation operation) override {
    return worker_.add([this, operation = std::move(operation)]() mutable { run(operation); });
  }
  void end() noexcept {
    stopped_ = true;
    worker_.stop([this] { cancel(); });
  }

  std::atomic<bool> stopped_{false};
  SerialWorker worker_;
};

}  // namespace

std::unique_ptr<Exchange> make_blocking_exchange(std::unique_ptr<Communicator> channel,
                                                 const char* what, const Observed& observed) {
  return std::make_unique<BlockingExchange>(std::move(channel), what, observed);
}

}  // namespace outrigger::comm

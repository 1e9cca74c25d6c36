// SPDX-License-Identifier: Apache-2.0
// Gathers parameters ahead of their use: in the order in which they are asked for, which is the
// same on all ranks, on a thread and a communicator of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/comm/communicator.h"

namespace outrigger::engine {

class Prefetch {
 public:
  // Gathers a root. Called on the thread.
  using Fetch = std::function<void(comm::Communicator& comm, int64_t root)>;

  Prefetch(std::unique_ptr<comm::Communicator> comm, Fetch fetch);
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  // Does not wait. Throws OTR_E_OUT_OF_MEMORY where there is no thread.
  void begin(int64_t root);
  // Until the root, or all, are there. Both throw the first failure, and OTR_E_INTERRUPTED, after
  // which they are called again.
  void wait(int64_t root);
  void wait_idle();
  // Throws the first failure. Any thread.
  void check();
  // Tells the others that this rank fetches no more.
  void give_up(int32_t culprit) noexcept { comm_->give_up(culprit); }
  // Ends what is on its way here, and so every wait.
  void cancel() noexcept { comm_->cancel(); }

 private:
  void serve() noexcept;
  template <typename Done>
  void wait_until(const Done& done);

  const std::unique_ptr<comm::Communicator> comm_;
  const Fetch fetch_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<int64_t> queue_;  // guarded by mutex_, as the next two are; the first is on its way
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace outrigger::engine

// SPDX-License-Identifier: Apache-2.0
// Gathers parameters ahead of their use: in the order in which they are asked for, which is the
// same on all ranks, on a thread and in a group of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/serial_worker.h"
#include "core/comm/group.h"

namespace outrigger::engine {

class Prefetch {
 public:
  // Gathers these roots. Called on the thread.
  using Fetch = std::function<void(comm::Group& group, const std::vector<int64_t>& roots)>;

  Prefetch(std::unique_ptr<comm::Group> group, Fetch fetch)
      : group_(std::move(group)), fetch_(std::move(fetch)), worker_("prefetched parameters") {}
  // The thread may be waiting for ranks that will not come.
  ~Prefetch() {
    worker_.stop([this] { cancel(); });
  }
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  // Does not wait. Throws OTR_E_OUT_OF_MEMORY where there is no thread.
  void begin(const std::vector<int64_t>& roots);
  // Until the root, or all, are there. Both throw the first failure, and OTR_E_INTERRUPTED, after
  // which they are called again.
  void wait(int64_t root);
  void wait_idle();
  // Throws the first failure. Any thread.
  void check() { worker_.check(); }
  // Tells the others that this rank fetches no more.
  void give_up(int32_t culprit) noexcept { group_->give_up(culprit); }
  // Ends what is on its way here, and so every wait.
  void cancel() noexcept { group_->cancel(); }

 private:
  void wait_for(uint64_t number);

  const std::unique_ptr<comm::Group> group_;
  const Fetch fetch_;
  std::mutex mutex_;
  std::unordered_map<int64_t, uint64_t> numbers_;  // of a root's last job; guarded by mutex_
  SerialWorker worker_;
};

}  // namespace outrigger::engine

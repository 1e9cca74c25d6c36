// SPDX-License-Identifier: Apache-2.0
// Hosts of one process: a communicator over another one whose ranks are on several hosts, which
// counts what crosses between them, lets it take its time, and breaks where a test wants it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "core/comm/forwarding.h"

namespace outrigger::comm::test {

// What a host's failure looks like to its own ranks.
struct HostDied : std::runtime_error {
  using runtime_error::runtime_error;
};

// The cable of each host, and what is to go wrong with it.
class Links {
 public:
  using Seconds = std::chrono::duration<double>;
  static constexpr int32_t kMost = 8;

  // A transfer of n bytes into a host takes latency + n / bandwidth seconds, one after another.
  explicit Links(Seconds latency = Seconds(0), double bandwidth = 0)
      : latency_(latency), bandwidth_(bandwidth) {}

  // Each rank of the host dies when it comes to its operation number `operation` between hosts
  // (from 0), or the host's cable keeps what crosses then for `stall`.
  void break_at(int32_t host, int64_t operation, Seconds stall = Seconds(0)) {
    broken_ = host;
    operation_ = operation;
    stall_ = stall;
  }

  // Of a transfer, beyond which it fails.
  Seconds timeout{20};

  // `bytes` go from host `from` to host `to`; returns when they are there. group.check() throws
  // what ends the wait; its rank `sender` is named by a timeout.
  void carry(int32_t from, int32_t to, size_t bytes, bool stalls, Communicator& group,
             int32_t sender);
  // A rank of the host comes to its operation number `operation`; true: it stalls.
  [[nodiscard]] bool come(int32_t host, int64_t operation) const;

  // Since the last reset.
  [[nodiscard]] uint64_t bytes(int32_t from, int32_t to) const {
    return bytes_[static_cast<size_t>(from * kMost + to)];
  }
  std::atomic<uint64_t> operations{0};  // of all ranks
  void reset() {
    operations = 0;
    for (auto& bytes : bytes_) bytes = 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const Seconds latency_;
  const double bandwidth_;  // bytes a second; 0: no limit
  int32_t broken_ = -1;
  int64_t operation_ = 0;
  Seconds stall_{0};
  std::array<std::atomic<uint64_t>, size_t{kMost} * kMost> bytes_{};
  std::mutex mutex_;
  std::array<Clock::time_point, kMost> free_{};  // when a host's cable is
};

// A rank's side, over a group of threads; host_of[rank] is where a rank of the group is. `come` is
// shared by all groups of the rank: how many operations it has come to.
[[nodiscard]] std::unique_ptr<Communicator> make_linked(std::unique_ptr<Communicator> inner,
                                                        Links& links, std::vector<int32_t> host_of,
                                                        std::shared_ptr<std::atomic<int64_t>> come);

// The groups of a rank of `all`, on hosts of `each` ranks, over links.
struct LinkedLevels {
  LinkedLevels(std::unique_ptr<Communicator> threads, Links& links, int32_t each);
  std::unique_ptr<Communicator> all, host, across;
};

}  // namespace outrigger::comm::test

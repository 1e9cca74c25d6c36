// SPDX-License-Identifier: Apache-2.0
// The one failure of a job. The first rank to post wins by compare-and-swap; everyone throws that
// text.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "core/comm/control.h"

namespace outrigger::comm {

class FailureBoard {
 public:
  FailureBoard(JobBlock& job, int32_t world, int32_t rank)
      : job_(job), world_(world), rank_(rank) {}

  // Any thread. Only the first post of the whole job counts.
  void post(int32_t status, int32_t culprit, uint64_t sequence, std::string_view text) noexcept;
  [[nodiscard]] bool is_set() const noexcept {
    return job_.failed_by.load(std::memory_order_acquire) != 0;
  }
  // Throws the job's failure if there is one. Any thread.
  void check() const {
    if (is_set()) [[unlikely]]
      throw_failure();
  }

 private:
  [[noreturn]] void throw_failure() const;

  JobBlock& job_;
  const int32_t world_, rank_;
  std::mutex posting_;  // this rank's threads share its one record
};

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
// The one failure of a job, or of a channel. The first rank to post wins by compare-and-swap;
// everyone throws that text.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/comm/control.h"

namespace outrigger::comm {

class FailureBoard {
 public:
  // `failed_by` as in a JobBlock; `record` is where a rank writes.
  using Records = std::function<FailureRecord&(int32_t rank)>;
  FailureBoard(std::atomic<uint32_t>& failed_by, Records record, int32_t world, int32_t rank)
      : failed_by_(failed_by), record_(std::move(record)), world_(world), rank_(rank) {}
  FailureBoard(JobBlock& job, int32_t world, int32_t rank)  // of the job
      : FailureBoard(
            job.failed_by, [&job](int32_t r) -> FailureRecord& { return job.member(r).failure; },
            world, rank) {}

  // Any thread. Only the first post of all ranks counts. cause: null, or what this rank's own calls
  // throw in its place.
  void post(int32_t status, int32_t culprit, uint64_t sequence, std::string_view text,
            const Error* cause = nullptr) noexcept;
  [[nodiscard]] bool is_set() const noexcept {
    return failed_by_.load(std::memory_order_acquire) != 0;
  }
  // Throws the failure if there is one. Any thread.
  void check() const {
    if (is_set()) [[unlikely]]
      throw_failure();
  }

 private:
  [[noreturn]] void throw_failure() const;

  std::atomic<uint32_t>& failed_by_;
  const Records record_;
  const int32_t world_, rank_;
  std::mutex posting_;          // this rank's threads share its one record
  std::optional<Error> cause_;  // written before this rank's post, and read after it
};

}  // namespace outrigger::comm

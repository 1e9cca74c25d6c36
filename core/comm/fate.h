// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>

#include "core/base/error.h"

namespace outrigger::comm {

// Of a failure that a group tells its ranks: all of them have it.
[[nodiscard]] constexpr bool is_told(int32_t status) {
  return status == OTR_E_PEER_DEAD || status == OTR_E_TIMEOUT || status == OTR_E_MISMATCH ||
         status == OTR_E_ABORTED;
}

// What a group's duplicates on this rank share: the first failure.
class Fate {
 public:
  void check() const {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
  }
  [[noreturn]] void fail_with(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    throw Error(*failure_);
  }
  // Returns whether it is the first.
  bool post(const Error& error) noexcept {
    const std::lock_guard lock(mutex_);
    const bool is_first = !failure_;
    if (is_first) failure_ = error;
    return is_first;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> failure_;
};

}  // namespace outrigger::comm

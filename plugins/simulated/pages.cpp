// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <iterator>
#include <string>
#include <system_error>

#include "plugins/common/work.h"

namespace outrigger::simulated {

using plugins::fail;

void Pages::lock(void* data, size_t bytes, bool refused) {
  auto* const begin = static_cast<std::byte*>(data);
  const std::lock_guard lock(mutex_);
  const auto next = locked_.lower_bound(begin + bytes);
  if (next != locked_.begin() && std::prev(next)->first + std::prev(next)->second > begin) {
    fail(OTR_E_ARGUMENT,
         "a part of these " + std::to_string(bytes) + " bytes is page-locked already");
  }
  if (refused || mlock(data, bytes) != 0) {
    const int reason = refused ? ENOMEM : errno;
    fail(OTR_E_OUT_OF_MEMORY, std::to_string(bytes) +
                                  " bytes: " + std::generic_category().message(reason) +
                                  "; the limit is RLIMIT_MEMLOCK (ulimit -l)");
  }
  locked_.emplace(begin, bytes);
}

size_t Pages::unlock(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = locked_.find(static_cast<std::byte*>(data));
  if (found == locked_.end()) return 0;
  const size_t bytes = found->second;
  munlock(data, bytes);
  locked_.erase(found);
  return bytes;
}

bool Pages::has(const void* data, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  auto next = locked_.upper_bound(const_cast<std::byte*>(begin));
  if (next == locked_.begin()) return false;
  const auto& [first, size] = *--next;
  return begin + bytes <= first + size;
}

size_t Pages::ranges() const {
  const std::lock_guard lock(mutex_);
  return locked_.size();
}

}  // namespace outrigger::simulated

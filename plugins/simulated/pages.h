// SPDX-License-Identifier: Apache-2.0
// Host memory whose pages are locked, as a driver locks them.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace outrigger::simulated {

class Pages {
 public:
  // A range of which a part is locked already is refused. refused: as if the system had no more.
  void lock(void* data, size_t bytes, bool refused);
  // How many bytes; 0: no locked range begins there.
  size_t unlock(void* data);
  [[nodiscard]] bool has(const void* data, size_t bytes) const;
  [[nodiscard]] size_t ranges() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::byte*, size_t> locked_;  // guarded by mutex_
};

}  // namespace outrigger::simulated

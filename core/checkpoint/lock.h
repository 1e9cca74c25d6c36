// SPDX-License-Identifier: Apache-2.0
// The right to change a folder of checkpoints.
#pragma once

#include <string_view>

#include "core/checkpoint/files.h"

namespace outrigger::checkpoint {

// Held by one process at a time, also across hosts where the file system's flock is; it ends with
// the process. A child that was forked meanwhile holds it, too.
class Lock {
 public:
  // Does not wait: throws OTR_E_STATE that names who holds it.
  explicit Lock(Folder folder);

  [[nodiscard]] Folder& folder() { return folder_; }

 private:
  Folder folder_;
  Descriptor file_;
};

// Its file stays in the folder: whoever removed it could remove another's lock.
inline constexpr std::string_view kLockName = ".lock";

}  // namespace outrigger::checkpoint

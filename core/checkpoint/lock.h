// SPDX-License-Identifier: Apache-2.0
// The right to change a folder of checkpoints.
#pragma once

#include <string_view>
#include <tuple>

#include "core/checkpoint/files.h"

namespace outrigger::checkpoint {

// One of a process at a time, and of all processes, also across hosts where the file system's
// record locks are. It ends with the process, whatever children that has.
class Lock {
 public:
  // Does not wait: throws OTR_E_STATE that names who holds it.
  explicit Lock(Folder folder);

  [[nodiscard]] Folder& folder() { return folder_; }

 private:
  // A process is not kept out by its own record locks, and loses them with any descriptor of the
  // file: so who may open the file is settled before.
  class Turn {
   public:
    explicit Turn(const Folder& folder);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::tuple<const Files*, dev_t, ino_t, pid_t> key_;
  };

  Folder folder_;
  Turn turn_;
  Descriptor file_;
};

// Its file stays in the folder: whoever removed it could remove another's lock.
inline constexpr std::string_view kLockName = ".lock";

}  // namespace outrigger::checkpoint

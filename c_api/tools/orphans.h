// SPDX-License-Identifier: Apache-2.0
// Processes that a worker started and did not live to end: the trainer behind a shell script, for
// one. They become children of this command.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

namespace outrigger::tools {

class Orphans {
 public:
  Orphans();  // from now on orphans below this process come to it

  // Takes the exit status of those that ended. `is_worker` tells a process that is not an orphan.
  void reap(const std::function<bool(pid_t)>& is_worker) const;

  // Children of this process that run and are no workers.
  [[nodiscard]] std::vector<pid_t> running(const std::function<bool(pid_t)>& is_worker) const;
};

}  // namespace outrigger::tools

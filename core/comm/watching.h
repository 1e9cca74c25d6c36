// SPDX-License-Identifier: Apache-2.0
// A wait in one group that is a part of another one's work: what ends the other one ends the wait.
#pragma once

#include "core/comm/group.h"

namespace outrigger::comm {

// While it lives, waits of this thread look at the group, too.
class Watching {
 public:
  explicit Watching(const Group& whole);
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  // Throws the failure of what this thread watches, if there is one; its culprit is a rank_outside,
  // since the waits are those of a part.
  static void check();

 private:
  const Group& whole_;
  const Watching* const outer_;
};

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
// The host's wish to end a call that waits for others. An entry point of the C API that may wait
// holds an Interruptible, and waits of the same thread ask it; the library's own threads have none.
#pragma once

#include <chrono>

#include "core/context/context.h"

namespace outrigger {

class Interruptible {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Interruptible(const Context& context);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  friend bool interrupted(Clock::time_point now);
  const Context* const context_;  // null: nobody is to be asked
  Interruptible* outer_ = nullptr;
  Clock::time_point asked_{};  // not before a wait has become a sleep
};

// Whether the host wants this thread's call to end. For a wait to ask at every look around; the
// host is asked every now and then only.
[[nodiscard]] bool interrupted(Interruptible::Clock::time_point now);

}  // namespace outrigger

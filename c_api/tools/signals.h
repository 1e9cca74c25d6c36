// SPDX-License-Identifier: Apache-2.0
// The signals that a run reacts to, read from a descriptor instead of interrupting it.
#pragma once

#include <sys/signalfd.h>

#include <optional>

namespace outrigger::tools {

// SIGCHLD, SIGINT, SIGTERM and SIGHUP, blocked from now on.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }  // for poll()
  [[nodiscard]] std::optional<signalfd_siginfo> next() const;            // without waiting
  // Waits so long; the number of the first signal that asks to end, or 0 if none came.
  [[nodiscard]] int wait_for_end(double seconds) const;

 private:
  int descriptor_;
};

}  // namespace outrigger::tools

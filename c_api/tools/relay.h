// SPDX-License-Identifier: Apache-2.0
// Passes a worker's output on, line by line, with its rank in front.
#pragma once

#include <string>

namespace outrigger::tools {

class Relay {
 public:
  // Takes the reading end of a pipe.
  Relay(int descriptor, int rank);
  Relay(Relay&& other) noexcept;
  Relay& operator=(Relay&&) = delete;
  ~Relay();

  // For poll(); -1 once the worker's side is closed.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  // Reads what is there, without waiting, and writes complete lines to standard error.
  void pump();

 private:
  void write_lines(bool all);

  int descriptor_;
  std::string prefix_, pending_;
};

}  // namespace outrigger::tools

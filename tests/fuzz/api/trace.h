// SPDX-License-Identifier: Apache-2.0
// What a program did, and the end of one that found a fault.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace otr_fuzz {

// The calls of one rank, in order. Its helper threads write here too.
class Trace {
 public:
  explicit Trace(int32_t rank);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  size_t begin(std::string line);
  void end(size_t line, const char* status);
  void print() const;

  std::atomic<int64_t> changes{0};  // calls that succeeded and may have changed something

 private:
  int32_t rank_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Prints the property that does not hold and every rank's calls, and aborts.
[[noreturn]] void broken(const std::string& property);

// While it lives, a program that takes longer is printed and the process aborted.
class Deadline {
 public:
  explicit Deadline(double seconds);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
};

}  // namespace otr_fuzz

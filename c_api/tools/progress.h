// SPDX-License-Identifier: Apache-2.0
// Lines on standard error while a call of the library reads much: how far it is.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace outrigger::tools {

class Progress {
 public:
  // From its construction to its end: a line after two seconds, and then every five. total: bytes
  // that this process will read; 0: unknown.
  Progress(const char* command, int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void tell(double seconds) const;

  const std::string command_;
  const int64_t total_, before_;  // bytes
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;  // guarded by mutex_
  std::thread thread_;    // last, as it uses the others
};

}  // namespace outrigger::tools

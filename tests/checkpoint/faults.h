// SPDX-License-Identifier: Apache-2.0
// The system's files, of which one call fails.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/checkpoint/files.h"

namespace outrigger::checkpoint::test {

enum class Operation : uint8_t {
  open,
  close,
  stat,
  read,
  write,
  allocate,
  set_direct,
  sync,
  lock,
  rename,
  link,
  unlink,
  make_folder,
  list
};

class FaultyFiles : public Files {
 public:
  // Asked before each call; `number` counts all calls from 0. 0: it goes on; −errno: it fails so
  // (a descriptor is closed all the same); kHalf: a read or write moves half of it.
  static constexpr int kHalf = 1;
  using Plan = std::function<int(int64_t number, Operation operation)>;
  explicit FaultyFiles(Plan plan) : plan_(std::move(plan)) {}

  [[nodiscard]] int64_t calls() const { return calls_; }

  int open(int folder, const char* name, int flags, mode_t mode) override;
  int close(int fd) override;
  int stat(int fd, struct stat& out) override;
  ssize_t read(int fd, void* data, size_t bytes, off_t offset) override;
  ssize_t write(int fd, const void* data, size_t bytes, off_t offset) override;
  int allocate(int fd, off_t bytes) override;
  int set_direct(int fd, bool direct) override;
  int sync(int fd) override;
  int lock(int fd) override;
  int rename(int folder, const char* from, const char* to) override;
  int link(int folder, const char* from, const char* to) override;
  int unlink(int folder, const char* name, int flags) override;
  int make_folder(int folder, const char* name) override;
  int list(int folder, std::vector<std::string>& names) override;

 private:
  int next(Operation operation);

  Plan plan_;
  std::mutex mutex_;  // guards the plan's state, and the next one
  int64_t calls_ = 0;
};

// One in which nothing fails: the system's, without waits for the disk.
[[nodiscard]] Files& quick_files();

// Only call number n of the operation, or all from it on.
[[nodiscard]] FaultyFiles::Plan failing(Operation operation, int64_t n, int reason,
                                        bool sticky = false);
// Call number n of any operation.
[[nodiscard]] FaultyFiles::Plan failing_at(int64_t n, int reason, bool sticky = false);

}  // namespace outrigger::checkpoint::test

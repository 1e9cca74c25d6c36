// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/faults.h"

#include <algorithm>

namespace outrigger::checkpoint::test {

int FaultyFiles::next(Operation operation) {
  const std::lock_guard lock(mutex_);
  return plan_(calls_++, operation);
}

int FaultyFiles::open(int folder, const char* name, int flags, mode_t mode) {
  const int verdict = next(Operation::open);
  return verdict < 0 ? verdict : posix_files().open(folder, name, flags, mode);
}

int FaultyFiles::close(int fd) {
  const int verdict = next(Operation::close);
  const int result = posix_files().close(fd);
  return verdict < 0 ? verdict : result;
}

int FaultyFiles::stat(int fd, struct stat& out) {
  const int verdict = next(Operation::stat);
  return verdict < 0 ? verdict : posix_files().stat(fd, out);
}

ssize_t FaultyFiles::read(int fd, void* data, size_t bytes, off_t offset) {
  const int verdict = next(Operation::read);
  if (verdict < 0) return verdict;
  if (verdict == kHalf) bytes = std::max<size_t>(bytes / 2, 1);
  return posix_files().read(fd, data, bytes, offset);
}

ssize_t FaultyFiles::write(int fd, const void* data, size_t bytes, off_t offset) {
  const int verdict = next(Operation::write);
  if (verdict < 0) return verdict;
  if (verdict == kHalf) bytes = std::max<size_t>(bytes / 2, 1);
  return posix_files().write(fd, data, bytes, offset);
}

int FaultyFiles::allocate(int fd, off_t bytes) {
  const int verdict = next(Operation::allocate);
  return verdict < 0 ? verdict : posix_files().allocate(fd, bytes);
}

int FaultyFiles::set_direct(int fd, bool direct) {
  const int verdict = next(Operation::set_direct);
  return verdict < 0 ? verdict : posix_files().set_direct(fd, direct);
}

int FaultyFiles::sync(int /*fd*/) {
  const int verdict = next(Operation::sync);
  return std::min(verdict, 0);  // slow, and no test takes the power away
}

int FaultyFiles::lock(int fd) {
  const int verdict = next(Operation::lock);
  return verdict < 0 ? verdict : posix_files().lock(fd);
}

int FaultyFiles::rename(int folder, const char* from, const char* to) {
  const int verdict = next(Operation::rename);
  return verdict < 0 ? verdict : posix_files().rename(folder, from, to);
}

int FaultyFiles::link(int folder, const char* from, const char* to) {
  const int verdict = next(Operation::link);
  return verdict < 0 ? verdict : posix_files().link(folder, from, to);
}

int FaultyFiles::unlink(int folder, const char* name, int flags) {
  const int verdict = next(Operation::unlink);
  return verdict < 0 ? verdict : posix_files().unlink(folder, name, flags);
}

int FaultyFiles::make_folder(int folder, const char* name) {
  const int verdict = next(Operation::make_folder);
  return verdict < 0 ? verdict : posix_files().make_folder(folder, name);
}

int FaultyFiles::list(int folder, std::vector<std::string>& names) {
  const int verdict = next(Operation::list);
  return verdict < 0 ? verdict : posix_files().list(folder, names);
}

Files& quick_files() {
  static FaultyFiles files([](int64_t, Operation) { return 0; });
  return files;
}

FaultyFiles::Plan failing(Operation operation, int64_t n, int reason, bool sticky) {
  return [=, seen = int64_t{0}](int64_t, Operation called) mutable {
    if (called != operation) return 0;
    const int64_t number = seen++;
    return number == n || (sticky && number > n) ? reason : 0;
  };
}

FaultyFiles::Plan failing_at(int64_t n, int reason, bool sticky) {
  return
      [=](int64_t number, Operation) { return number == n || (sticky && number > n) ? reason : 0; };
}

}  // namespace outrigger::checkpoint::test

// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "core/checkpoint/files.h"

namespace outrigger::checkpoint {
namespace {

template <typename Result>
Result or_errno(Result result) {
  return result < 0 ? static_cast<Result>(-errno) : result;
}

class PosixFiles : public Files {
 public:
  int open(int folder, const char* name, int flags, mode_t mode) override {
    const int fd = or_errno(::openat(folder, name, flags | O_CLOEXEC | O_NOCTTY, mode));
    // Files are read from front to back, by several threads: the system reads further ahead.
    if (fd >= 0 && (flags & O_ACCMODE) == O_RDONLY) posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return fd;
  }
  int close(int fd) override { return or_errno(::close(fd)); }
  int stat(int fd, struct stat& out) override { return or_errno(::fstat(fd, &out)); }
  ssize_t read(int fd, void* data, size_t bytes, off_t offset) override {
    return or_errno(::pread(fd, data, bytes, offset));
  }
  ssize_t write(int fd, const void* data, size_t bytes, off_t offset) override {
    return or_errno(::pwrite(fd, data, bytes, offset));
  }
  int allocate(int fd, off_t bytes) override { return or_errno(::fallocate(fd, 0, 0, bytes)); }
  int set_direct(int fd, bool direct) override {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0) return -errno;
    return or_errno(::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT));
  }
  int sync(int fd) override { return or_errno(::fsync(fd)); }
  int lock(int fd) override {
    struct flock all{};
    all.l_type = F_WRLCK;
    all.l_whence = SEEK_SET;
    const int result = or_errno(::fcntl(fd, F_SETLK, &all));
    return result == -EACCES ? -EWOULDBLOCK : result;  // either may say that another has it
  }
  int rename(int folder, const char* from, const char* to) override {
    return or_errno(::renameat(folder, from, folder, to));
  }
  int link(int folder, const char* from, const char* to) override {
    return or_errno(::linkat(folder, from, folder, to, 0));
  }
  int unlink(int folder, const char* name, int flags) override {
    return or_errno(::unlinkat(folder, name, flags));
  }
  int make_folder(int folder, const char* name) override {
    return or_errno(::mkdirat(folder, name, 0777));
  }

  int list(int folder, std::vector<std::string>& names) override {
    // A descriptor of its own: the position in a folder belongs to the open file.
    const int fd = open(folder, ".", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return fd;
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(fd), ::closedir);
    if (!entries) {
      const int reason = -errno;
      ::close(fd);
      return reason;
    }
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(entries.get());  // NOLINT(concurrency-mt-unsafe)
      if (entry == nullptr) return -errno;
      names.emplace_back(static_cast<const char*>(entry->d_name));
    }
  }
};

}  // namespace

Files& posix_files() {
  static PosixFiles files;
  return files;
}

}  // namespace outrigger::checkpoint

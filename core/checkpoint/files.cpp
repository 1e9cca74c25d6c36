// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/files.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/calls.h"

namespace outrigger::checkpoint {
namespace {

// One call moves at most this much: Linux stops a little below 2 GiB, and an interrupt is sooner
// seen.
constexpr size_t kMaxBytes = size_t{1} << 30;

int32_t status_of(int reason) {
  switch (reason) {
    case ENOENT:
      return OTR_E_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
      return OTR_E_DUPLICATE;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return OTR_E_OUT_OF_MEMORY;
    case ELOOP:  // a link, where none is followed
    case ENOTDIR:
    case EISDIR:
    case ENXIO:  // a socket
      return OTR_E_CORRUPT;
    default:
      return OTR_E_IO;
  }
}

}  // namespace

void fail_call(const std::string& path, std::string_view operation, ssize_t result) {
  const auto reason = static_cast<int>(-result);
  const std::string note = reason == ELOOP ? "; it is a link, and links are not followed"
                           : reason == EMFILE
                               ? "; raise the process's limit, RLIMIT_NOFILE (ulimit -n)"
                               : "";
  fail(status_of(reason), "{}: cannot {}: {}{}", path, operation,
       std::generic_category().message(reason), note);
}

// ---- Descriptor ---------------------------------------------------------------------------------

Descriptor::Descriptor(Descriptor&& other) noexcept
    : files_(other.files_),
      fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      failed_(other.failed_.load()) {}

Descriptor::~Descriptor() {
  if (fd_ >= 0) files_->close(fd_);  // nothing that was promised depends on it
}

struct stat Descriptor::status() const {
  struct stat status{};
  require(path_, "look at it (fstat)", [&] { return files_->stat(fd_, status); });
  return status;
}

void Descriptor::require_sound() const {
  const int reason = failed_.load();
  if (reason == 0) return;
  fail(OTR_E_IO, "{}: an earlier write or fsync failed ({}), so what it holds is unknown", path_,
       std::generic_category().message(reason));
}

void Descriptor::sync() {
  require_sound();
  const int result = repeat_interrupted([&] { return files_->sync(fd_); });
  if (result >= 0) return;
  fail_for_good(result);
  fail_call(path_, "make it durable (fsync)", result);
}

void Descriptor::close() {
  if (fd_ < 0) return;
  const int result = files_->close(std::exchange(fd_, -1));
  require_sound();
  // EINTR: it is closed, and what was written is durable since the sync before.
  if (result < 0 && result != -EINTR) fail_call(path_, "close it", result);
}

// ---- File ---------------------------------------------------------------------------------------

int64_t File::size() const { return descriptor_.status().st_size; }

void File::read_at(int64_t offset, std::span<std::byte> out) const {
  const int64_t end = offset + static_cast<int64_t>(out.size());
  while (!out.empty()) {
    const ssize_t done = repeat_interrupted([&] {
      return descriptor_.files().read(descriptor_.fd(), out.data(), std::min(out.size(), kMaxBytes),
                                      offset);
    });
    if (done < 0) fail_call(path(), "read it", done);
    if (done == 0) {
      fail(OTR_E_CORRUPT, "{}: cannot read it: it ends at byte {}, and bytes up to {} are needed",
           path(), offset, end);
    }
    out = out.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

void File::write_at(int64_t offset, std::span<const std::byte> data) {
  descriptor_.require_sound();
  bool refused = false;
  while (!data.empty()) {
    const ssize_t done = repeat_interrupted([&] {
      return descriptor_.files().write(descriptor_.fd(), data.data(),
                                       std::min(data.size(), kMaxBytes), offset);
    });
    // A file system that wants other sizes or addresses for direct writes than we have.
    if (done == -EINVAL && set_direct(false)) {
      if (std::exchange(refused, true)) fail_call(path(), "write it", done);
      continue;
    }
    if (done <= 0) {
      const ssize_t reason = done == 0 ? -EIO : done;
      descriptor_.fail_for_good(reason);
      fail_call(path(), "write it", reason);
    }
    data = data.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

void File::allocate(int64_t bytes) {
  const int result =
      repeat_interrupted([&] { return descriptor_.files().allocate(descriptor_.fd(), bytes); });
  if (result >= 0 || result == -EOPNOTSUPP || result == -ENOSYS || result == -EINVAL) return;
  fail_call(path(), format_text("reserve {} bytes for it", bytes), result);
}

bool File::set_direct(bool direct) {
  return repeat_interrupted(
             [&] { return descriptor_.files().set_direct(descriptor_.fd(), direct); }) >= 0;
}

}  // namespace outrigger::checkpoint

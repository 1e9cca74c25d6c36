// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/lock.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <set>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"
#include "core/checkpoint/calls.h"

namespace outrigger::checkpoint {
namespace {

// One size for every text, so that none has to be cut off behind a longer one.
constexpr size_t kHolderBytes = 128;

// Who holds the lock is told where it can be: a disk that is full must not stop who makes room.
void write_holder(const Descriptor& file) {
  std::string text = format_text("process {} on {}", getpid(), host_name());
  text.resize(kHolderBytes - 1, ' ');
  text += '\n';
  (void)file.files().write(file.fd(), text.data(), text.size(), 0);
}

std::string read_holder(const Descriptor& file) {
  std::string text(kHolderBytes, '\0');
  const ssize_t bytes = file.files().read(file.fd(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  const size_t last = text.find_last_not_of(" \n");
  if (last == std::string::npos) return "another process";
  return printable(std::string_view(text).substr(0, last + 1), kHolderBytes);
}

// What a forked child finds here is its parent's.
struct Turns {
  std::mutex mutex;
  std::set<std::tuple<const Files*, dev_t, ino_t, pid_t>> taken;
};
Turns& turns() {
  static auto* const all = new Turns;  // a lock may end behind other statics
  return *all;
}

}  // namespace

Lock::Turn::Turn(const Folder& folder) {
  const struct stat status = folder.status();
  key_ = {&folder.files(), status.st_dev, status.st_ino, current_process()};
  const std::lock_guard lock(turns().mutex);
  if (turns().taken.insert(key_).second) return;
  fail(OTR_E_STATE, "{}: cannot lock the folder: this process writes in it",
       folder.path_of(kLockName));
}

Lock::Turn::~Turn() {
  const std::lock_guard lock(turns().mutex);
  turns().taken.erase(key_);
}

Lock::Lock(Folder folder)
    : folder_(std::move(folder)), turn_(folder_), file_(folder_.open_or_create(kLockName)) {
  if (!S_ISREG(file_.status().st_mode)) {
    fail(OTR_E_CORRUPT, "{}: cannot lock it: it is not a file", file_.path());
  }
  const int result = repeat_interrupted([&] { return file_.files().lock(file_.fd()); });
  if (result == -EWOULDBLOCK) {
    fail(OTR_E_STATE, "{}: cannot lock the folder: {} writes in it", file_.path(),
         read_holder(file_));
  }
  if (result < 0) fail_call(file_.path(), "lock the folder", result);
  write_holder(file_);
}

}  // namespace outrigger::checkpoint

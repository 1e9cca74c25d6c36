// SPDX-License-Identifier: Apache-2.0
#include "core/comm/liveness.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/comm/control.h"
#include "core/comm/region.h"

namespace outrigger::comm {
namespace {

class ThreadLiveness final : public Liveness {
 public:
  bool ended(int32_t) const override { return false; }
};

class PidfdLiveness final : public Liveness {
 public:
  explicit PidfdLiveness(std::vector<UniqueFd> processes) : processes_(std::move(processes)) {}

  bool ended(int32_t rank) const override {
    pollfd process{processes_[static_cast<size_t>(rank)].get(), POLLIN, 0};
    return poll(&process, 1, 0) == 1;
  }

 private:
  std::vector<UniqueFd> processes_;
};

class LockLiveness final : public Liveness {
 public:
  LockLiveness(std::shared_ptr<Region> control, int32_t rank)
      : control_(std::move(control)), rank_(rank) {
    struct flock lock = byte_of(rank);
    if (fcntl(control_->fd(), F_SETLK, &lock) != 0) {
      fail(OTR_E_SYSTEM, "rank {} cannot lock its byte of the control memory: {}", rank,
           std::generic_category().message(errno));
    }
  }

  bool ended(int32_t rank) const override {
    if (rank == rank_) return false;  // one's own lock does not show
    // A rank signs in after it has taken its lock.
    auto& job = *reinterpret_cast<JobBlock*>(control_->data());
    if (job.member(rank).process.load(std::memory_order_acquire) == 0) return false;
    struct flock lock = byte_of(rank);
    return fcntl(control_->fd(), F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }

 private:
  static struct flock byte_of(int32_t rank) {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
  }

  std::shared_ptr<Region> control_;
  int32_t rank_;
};

}  // namespace

std::unique_ptr<Liveness> make_thread_liveness() { return std::make_unique<ThreadLiveness>(); }

std::unique_ptr<Liveness> make_pidfd_liveness(std::vector<UniqueFd> processes) {
  return std::make_unique<PidfdLiveness>(std::move(processes));
}

std::unique_ptr<Liveness> make_lock_liveness(std::shared_ptr<Region> control, int32_t rank) {
  return std::make_unique<LockLiveness>(std::move(control), rank);
}

UniqueFd open_own_pidfd() {  // close-on-exec by definition
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
}

}  // namespace outrigger::comm

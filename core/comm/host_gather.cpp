// SPDX-License-Identifier: Apache-2.0
// HostCommunicator: all-gather of private memory. A large one is copied once, straight from the
// other ranks' memory, where the system lets a process read that; else it goes through the staging
// area, twice.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"
#include "core/comm/copy.h"
#include "core/comm/host.h"

namespace outrigger::comm {
namespace {

constexpr size_t kDirectBytes = size_t{512} << 10;  // a rank: below, staging costs no more
constexpr size_t kStreamedBytes = size_t{8} << 20;  // a result that no cache is likely to hold

// What a rank tells the others before they read its memory.
struct Notice {
  uint64_t data;    // the address of what it gives
  uint64_t secret;  // the address of a number that it alone has …
  uint64_t number;  // … this one: whoever can read it has found the right process
};

}  // namespace

uint64_t HostCommunicator::some_number(const void* self) {
  const auto now = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  const auto bits = reinterpret_cast<uintptr_t>(self) ^ static_cast<uint64_t>(current_process())
                                                            << 40;
  return (now ^ bits) * 0x9e3779b97f4a7c15u | 1;
}

bool HostCommunicator::read_peer(int32_t rank, std::byte* to, uint64_t address,
                                 size_t bytes) const {
  constexpr size_t kPart = size_t{64} << 20;
  const auto process =
      static_cast<pid_t>(member_->job.member(rank).process.load(std::memory_order_relaxed));
  // A thread, whose memory may be gone after an abort; or a process of another namespace.
  if (process == member_->process) return false;
  while (bytes > 0) {
    iovec here{to, std::min(bytes, kPart)};
    iovec there{reinterpret_cast<void*>(address), here.iov_len};
    const ssize_t done = process_vm_readv(process, &here, 1, &there, 1, 0);
    if (done <= 0) return false;
    to += done, address += static_cast<uint64_t>(done), bytes -= static_cast<size_t>(done);
  }
  return true;
}

void HostCommunicator::could_not_read(int32_t rank) {
  // A process loses its memory before the system says that it has ended: as long before as it takes
  // to give the memory back.
  const auto moment = std::chrono::seconds(errno == ESRCH ? 30 : 1);
  for (const auto end = Clock::now() + moment; Clock::now() < end;) {
    look_around(&Slot::arrived, step_ + 1, {}, Clock::now(), false);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  fail_job(OTR_E_SYSTEM, rank,
           format_text(
               "{} (operation {} of '{}'): rank {} cannot read the memory that rank {} gave. Was "
               "it freed during the call?",
               current_.text(), current_.number, name_, rank_, rank));
}

void HostCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                  std::string_view label) {
  require_usable();
  require_room(label, mine.size(), all.size(), world_);
  if (world_ > 1 && mine.size() >= kDirectBytes && direct_ != Direct::no) {
    gather_directly(mine, all, label);
  } else {
    gather_staged(mine, all, label, false);
  }
}

void HostCommunicator::gather_staged(std::span<const std::byte> mine, std::span<std::byte> all,
                                     std::string_view label, bool begun) {
  const size_t chunk = world_ == 1 ? mine.size() : ChannelBlock::staging_bytes(world_);
  const auto copy = all.size() >= kStreamedBytes ? stream_bytes : copy_bytes;
  size_t done = 0;
  do {
    const size_t n = std::min(chunk, mine.size() - done);
    if (world_ > 1 && !interrupted_) copy_bytes(staging(rank_, step_ + 1), mine.data() + done, n);
    if (done == 0 && !begun) {
      begin(OperationKind::all_gather, mine.size(), label);
    } else {
      step();
    }
    for (int32_t i = 0; i < world_; i++) {  // its own first, while it is in the cache
      const int32_t r = (rank_ + i) % world_;
      const std::byte* from = r == rank_ ? mine.data() + done : staging(r, step_);
      copy(all.data() + static_cast<size_t>(r) * mine.size() + done, from, n);
    }
    done += n;
  } while (done < mine.size());
}

void HostCommunicator::gather_directly(std::span<const std::byte> mine, std::span<std::byte> all,
                                       std::string_view label) {
  // Nobody may read before all are here for good: a call that is interrupted while it waits for
  // others gives its memory back.
  begin(OperationKind::all_gather, mine.size(), label);
  const Notice own{reinterpret_cast<uintptr_t>(mine.data()), reinterpret_cast<uintptr_t>(&secret_),
                   secret_};
  std::memcpy(staging(rank_, step_ + 1), &own, sizeof own);
  step();
  std::vector<Notice> notices(static_cast<size_t>(world_));
  for (int32_t r = 0; r < world_; r++) {
    std::memcpy(&notices[static_cast<size_t>(r)], staging(r, step_), sizeof(Notice));
  }
  const auto place = [&](int32_t r) { return all.data() + static_cast<size_t>(r) * mine.size(); };
  if (direct_ == Direct::unknown) {
    bool can = true;
    for (int32_t r = 0; r < world_ && can; r++) {
      const Notice& notice = notices[static_cast<size_t>(r)];
      uint64_t found = 0;
      can = r == rank_ ||
            (read_peer(r, reinterpret_cast<std::byte*>(&found), notice.secret, sizeof found) &&
             found == notice.number);
    }
    *staging(rank_, step_ + 1) = static_cast<std::byte>(can);
    step();
    for (int32_t r = 0; r < world_; r++) can = can && *staging(r, step_) != std::byte{0};
    direct_ = can ? Direct::yes : Direct::no;
    if (!can) return gather_staged(mine, all, label, true);
  }
  (all.size() >= kStreamedBytes ? stream_bytes : copy_bytes)(place(rank_), mine.data(),
                                                             mine.size());
  for (int32_t i = 1; i < world_; i++) {  // each rank starts with another peer
    const int32_t r = (rank_ + i) % world_;
    if (!read_peer(r, place(r), notices[static_cast<size_t>(r)].data, mine.size())) {
      could_not_read(r);
    }
  }
  step();  // nobody still reads this rank's memory
}

}  // namespace outrigger::comm

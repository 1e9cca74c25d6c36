// SPDX-License-Identifier: Apache-2.0
// The side of rank 0: let the others in, and say why not.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/liveness.h"
#include "core/comm/packet.h"
#include "core/comm/rendezvous_impl.h"
#include "core/comm/watching.h"
#include "core/context/interrupt.h"

namespace outrigger::comm {
namespace {

class Door {
 public:
  Door(const Rendezvous& r, int control)
      : r_(r), control_(control), deadline_(r.deadline), ranks_(static_cast<size_t>(r.world)) {
    if (r_.pidfds) ranks_[0].process = open_own_pidfd();
    ranks_[0].process_number = getpid();
    have_pidfds_ = static_cast<bool>(ranks_[0].process);
  }

  Attachment run() {
    if (r_.world > 1) listen();
    while (arrived_ < r_.world) {
      wait();
      accept_guests(ranks_.size() + 16);
      for (auto& guest : guests_) hear(guest);
      std::erase_if(guests_, [](const UniqueFd& guest) { return !guest; });
      watch_ranks();
      if (arrived_ == r_.world) break;
      if (seconds_until(deadline_) <= 0) refuse_late();
      Watching::check();
      if (interrupted(Clock::now())) refuse_interrupted();
    }
    listener_.reset();
    return let_in();
  }

 private:
  struct Rank {
    UniqueFd socket, process;
    int64_t process_number = 0;
  };

  void listen();
  void wait();
  // As long as there is room for those that have not said who they are; the others wait outside.
  void accept_guests(size_t room);
  void hear(UniqueFd& guest);
  void watch_ranks();
  [[noreturn]] void refuse_late();
  [[noreturn]] void refuse_interrupted();
  // "ranks 2, 3"
  [[nodiscard]] std::string missing_ranks() const;
  // Tells everyone who is there, and throws.
  [[noreturn]] void refuse(int32_t status, const std::string& text);
  void tell_all(int32_t status, const std::string& text);
  Attachment let_in();

  const Rendezvous& r_;
  const int control_;
  const Clock::time_point opened_ = Clock::now();
  Clock::time_point
      deadline_;  // the earliest of all ranks, so that whoever is there hears who is missing
  UniqueFd listener_;
  std::vector<UniqueFd> guests_;  // connected, have not said who they are
  std::vector<Rank> ranks_;
  int32_t arrived_ = 1;
  int32_t foreigners_ = 0;
  bool have_pidfds_;
};

void Door::listen() {
  const SocketAddress address(r_.job);
  for (;;) {
    listener_ = open_socket();
    if (bind(listener_.get(), address.get(), address.size()) == 0) break;
    if (errno != EADDRINUSE) {
      fail(OTR_E_SYSTEM, "rank 0 cannot listen for job '{}' (bind): {}", r_.job,
           std::generic_category().message(errno));
    }
    // Someone is rank 0 already: knock, so that both learn of it. No answer: it was just leaving.
    if (UniqueFd other = try_connect(r_)) {
      send_hello(other.get(), r_);
      static_cast<void>(receive_welcome(std::move(other), r_));
    }
    if (seconds_until(deadline_) <= 0) {
      fail(OTR_E_TIMEOUT,
           "the socket of job '{}' stayed in use for {} s: another job of this name runs", r_.job,
           r_.timeout);
    }
    Watching::check();
    if (interrupted(Clock::now())) refuse_interrupted();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (::listen(listener_.get(), r_.world + 16) != 0) {
    fail(OTR_E_SYSTEM, "rank 0 cannot listen for job '{}': {}", r_.job,
         std::generic_category().message(errno));
  }
}

void Door::wait() {
  std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
  for (const auto& guest : guests_) fds.push_back({guest.get(), POLLIN, 0});
  for (const auto& rank : ranks_)
    fds.push_back({rank.socket.get(), POLLIN, 0});  // −1 is passed over
  poll(fds.data(), fds.size(),
       static_cast<int>(std::clamp(seconds_until(deadline_), 0.0, 0.1) * 1000));
}

void Door::accept_guests(size_t room) {
  while (guests_.size() < room) {
    UniqueFd guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!guest) return;
    if (identity_of(guest.get()).user == geteuid()) {
      guests_.push_back(std::move(guest));
    } else {
      foreigners_++;
    }
  }
}

void Door::hear(UniqueFd& guest) {
  Hello hello;
  std::vector<UniqueFd> descriptors;
  const auto result = receive_packet(guest.get(), hello, descriptors);
  if (result == PacketResult::would_block) return;
  if (result == PacketResult::other_version) {
    refuse(OTR_E_MISMATCH, format_text("process {} came to job '{}' with version {} of the shared "
                                       "memory layout, rank 0 has {}: "
                                       "run one version of the library on all ranks",
                                       identity_of(guest.get()).process, r_.job, hello.head.version,
                                       kLayoutVersion));
  }
  if (result != PacketResult::done) {  // not one of ours: whatever it is, it shall not end the job
    foreigners_++;
    guest.reset();
    return;
  }
  const std::string_view library(hello.library.data(),
                                 strnlen(hello.library.data(), hello.library.size()));
  if (library != OTR_VERSION_STRING) {
    refuse(OTR_E_MISMATCH, format_text("rank {} of job '{}' runs library version {}, rank 0 runs "
                                       "{}: run one version on all ranks",
                                       hello.rank, r_.job, library, OTR_VERSION_STRING));
  }
  if (hello.world != r_.world) {
    refuse(
        OTR_E_MISMATCH,
        format_text("rank {} of job '{}' (process {}) was started for world size {}, rank 0 for {}",
                    hello.rank, r_.job, hello.process, hello.world, r_.world));
  }
  if (hello.rank < 0 || hello.rank >= r_.world) {
    refuse(OTR_E_MISMATCH, format_text("process {} came to job '{}' as rank {} of {}",
                                       hello.process, r_.job, hello.rank, r_.world));
  }
  Rank& rank = ranks_[static_cast<size_t>(hello.rank)];
  if (hello.rank == 0 || rank.socket) {
    refuse(OTR_E_MISMATCH, format_text("rank {} of job '{}' is there twice: processes {} and {}; "
                                       "give each rank its own number "
                                       "and each job its own name",
                                       hello.rank, r_.job, rank.process_number, hello.process));
  }
  rank.socket = std::move(guest);
  rank.process_number = hello.process;
  if (descriptors.size() == 1) rank.process = std::move(descriptors.front());
  have_pidfds_ = have_pidfds_ && rank.process;
  arrived_++;
  // A little earlier than the rank itself would give up.
  const double left = std::max(hello.seconds_left - std::min(0.05, hello.seconds_left / 10), 0.0);
  deadline_ = std::min(deadline_, deadline_in(left));
}

// A rank that was let in says nothing until it gets its answer: what can be read is its end.
void Door::watch_ranks() {
  for (size_t r = 1; r < ranks_.size(); r++) {
    if (!ranks_[r].socket || !wait_for_socket(ranks_[r].socket.get(), POLLIN, 0)) continue;
    refuse(OTR_E_PEER_DEAD, format_text("rank {} of job '{}' (process {}) ended while the ranks "
                                        "attached; start all ranks again",
                                        r, r_.job, ranks_[r].process_number));
  }
}

std::string Door::missing_ranks() const {
  std::string missing;
  int32_t count = 0;
  constexpr int32_t kNamed = 16;
  for (size_t r = 1; r < ranks_.size(); r++) {
    if (ranks_[r].socket) continue;
    if (++count <= kNamed) missing += format_text("{}{}", count > 1 ? ", " : "", r);
  }
  return format_text("{} {}{}", count > 1 ? "ranks" : "rank", missing,
                     count > kNamed ? " and more" : "");
}

void Door::refuse_late() {
  refuse(
      OTR_E_TIMEOUT,
      format_text("{} of {} ranks did not come to job '{}' within {:.3g} s: missing {}{}; "
                  "start them with the "
                  "same job text and user on this host, or raise the timeout",
                  r_.world - arrived_, r_.world, r_.job, -seconds_until(opened_), missing_ranks(),
                  foreigners_ == 0
                      ? ""
                      : format_text(" ({} others knocked that are no ranks)", foreigners_)));
}

void Door::refuse_interrupted() {
  const std::string text = format_text(
      "rank 0 was interrupted by its host while it waited for {} of job '{}'; start all ranks "
      "again",
      missing_ranks(), r_.job);
  tell_all(OTR_E_ABORTED, text);
  fail(OTR_E_INTERRUPTED, "{}", text);
}

void Door::refuse(int32_t status, const std::string& text) {
  tell_all(status, text);
  fail(status, "{}", text);
}

void Door::tell_all(int32_t status, const std::string& text) {
  Welcome no;
  no.status = status;
  std::copy_n(text.data(), std::min(text.size(), no.text.size() - 1), no.text.data());
  // Those still in the queue, too.
  accept_guests(guests_.size() + ranks_.size() + 16);
  for (const auto& guest : guests_) static_cast<void>(send_packet(guest.get(), no));
  for (const auto& rank : ranks_) {
    if (rank.socket) static_cast<void>(send_packet(rank.socket.get(), no));
  }
}

Attachment Door::let_in() {
  std::vector<int> descriptors{control_};
  for (const auto& rank : ranks_) {
    if (have_pidfds_) descriptors.push_back(rank.process.get());
  }
  Welcome welcome;
  welcome.descriptors = static_cast<uint32_t>(descriptors.size());
  Attachment attachment;
  for (auto& rank : ranks_) {
    for (size_t at = 0; rank.socket && at < descriptors.size(); at += kMostDescriptors) {
      const size_t n = std::min(kMostDescriptors, descriptors.size() - at);
      // A rank that has just ended is found out at the first barrier.
      static_cast<void>(
          send_packet(rank.socket.get(), welcome, std::span(descriptors).subspan(at, n)));
    }
    attachment.sockets.push_back(std::move(rank.socket));
    if (have_pidfds_) attachment.processes.push_back(std::move(rank.process));
  }
  return attachment;
}

}  // namespace

Attachment gather_ranks(const Rendezvous& rendezvous, int control) {
  return Door(rendezvous, control).run();
}

}  // namespace outrigger::comm

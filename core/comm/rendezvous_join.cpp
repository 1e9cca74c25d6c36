// SPDX-License-Identifier: Apache-2.0
// The side of ranks 1 and up, and what both sides share.
#include <poll.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <system_error>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/liveness.h"
#include "core/comm/packet.h"
#include "core/comm/rendezvous_impl.h"
#include "core/comm/watching.h"
#include "core/context/interrupt.h"

namespace outrigger::comm {
namespace {

[[noreturn]] void fail_interrupted(const Rendezvous& r) {
  fail(OTR_E_INTERRUPTED,
       "rank {} was interrupted by its host while it waited for rank 0 of job '{}' to let it in; "
       "start all ranks again",
       r.rank, r.job);
}

UniqueFd connect_to_rank_0(const Rendezvous& r) {
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    if (UniqueFd fd = try_connect(r)) return fd;
    if (Clock::now() >= r.deadline) {
      fail(OTR_E_TIMEOUT,
           "rank 0 did not come: nobody listened for job '{}' within {} s of rank {} starting to "
           "attach; "
           "start rank 0 with the same job text and user on this host, or raise the timeout",
           r.job, r.timeout, r.rank);
    }
    Watching::check();
    if (interrupted(Clock::now())) fail_interrupted(r);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
}

}  // namespace

SocketAddress::SocketAddress(const std::string& job) {
  const XXH128_hash_t hash = XXH3_128bits(job.data(), job.size());
  const auto name = format_text("outrigger-{}-{:016x}{:016x}", geteuid(), hash.high64, hash.low64);
  address_.sun_family = AF_UNIX;
  std::memcpy(address_.sun_path + 1, name.data(), name.size());  // a zero byte first: abstract
  size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

PeerIdentity identity_of(int socket) {
  ucred who{};
  socklen_t size = sizeof(who);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    fail(OTR_E_SYSTEM, "cannot ask who is at the other end (SO_PEERCRED): {}",
         std::generic_category().message(errno));
  }
  return {who.uid, who.pid};
}

double seconds_until(Clock::time_point deadline) {
  if (deadline == Clock::time_point::max()) return std::numeric_limits<double>::max();
  return std::chrono::duration<double>(deadline - Clock::now()).count();
}

UniqueFd open_socket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    fail(errno == EMFILE || errno == ENFILE ? OTR_E_OUT_OF_MEMORY : OTR_E_SYSTEM,
         "cannot open a unix socket: {}", std::generic_category().message(errno));
  }
  return fd;
}

UniqueFd try_connect(const Rendezvous& r) {
  UniqueFd fd = open_socket();
  const SocketAddress address(r.job);
  if (connect(fd.get(), address.get(), address.size()) != 0) {
    if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR || errno == ENOENT) {
      return {};
    }
    fail(errno == EPROTOTYPE ? OTR_E_MISMATCH : OTR_E_SYSTEM,
         "cannot connect to rank 0 of job '{}': {}", r.job, std::generic_category().message(errno));
  }
  const PeerIdentity peer = identity_of(fd.get());
  if (peer.user != geteuid()) {
    fail(OTR_E_SYSTEM,
         "the socket of job '{}' is held by user {} (process {}), this rank runs as user {}; "
         "give the job another name",
         r.job, peer.user, peer.process, geteuid());
  }
  return fd;
}

void send_hello(int socket, const Rendezvous& r) {
  Hello hello;
  std::copy_n(OTR_VERSION_STRING, std::min(sizeof(OTR_VERSION_STRING), hello.library.size() - 1),
              hello.library.data());
  hello.rank = r.rank;
  hello.world = r.world;
  hello.seconds_left = seconds_until(r.deadline);
  hello.process = getpid();
  const UniqueFd self = r.pidfds ? open_own_pidfd() : UniqueFd();
  const int fd = self.get();
  // A fresh socket has room; a closed one shows when the answer is read.
  static_cast<void>(send_packet(socket, hello, std::span(&fd, self ? 1u : 0u)));
}

Attachment receive_welcome(UniqueFd socket, const Rendezvous& r) {
  std::vector<UniqueFd> descriptors;
  Welcome welcome;
  do {
    PacketResult result = PacketResult::would_block;
    while ((result = receive_packet(socket.get(), welcome, descriptors)) ==
           PacketResult::would_block) {
      const double left = seconds_until(r.deadline);
      if (left <= 0) {
        fail(OTR_E_TIMEOUT,
             "rank 0 of job '{}' (process {}) is there but did not let rank {} in within {} s; see "
             "whether "
             "it is stopped, or raise the timeout",
             r.job, identity_of(socket.get()).process, r.rank, r.timeout);
      }
      Watching::check();
      if (interrupted(Clock::now())) fail_interrupted(r);
      wait_for_socket(socket.get(), POLLIN, std::min(left, 0.05));
    }
    switch (result) {
      case PacketResult::closed:
        fail(OTR_E_PEER_DEAD,
             "rank 0 of job '{}' (process {}) ended, or went on with another process as rank {}, "
             "while rank "
             "{} attached; start all ranks again",
             r.job, identity_of(socket.get()).process, r.rank, r.rank);
      case PacketResult::out_of_descriptors:
        fail(OTR_E_OUT_OF_MEMORY,
             "rank {} has no room for {} file descriptors more (a few a rank); raise RLIMIT_NOFILE "
             "(ulimit -n)",
             r.rank, welcome.descriptors);
      case PacketResult::foreign:
        fail(OTR_E_MISMATCH,
             "what listens as rank 0 of job '{}' (process {}) does not speak this library's "
             "protocol",
             r.job, identity_of(socket.get()).process);
      case PacketResult::other_version:
        fail(OTR_E_MISMATCH,
             "rank 0 of job '{}' has version {} of the shared memory layout, rank {} has {}: run "
             "one version of "
             "the library on all ranks",
             r.job, welcome.head.version, r.rank, kLayoutVersion);
      case PacketResult::done:
      case PacketResult::would_block:
        break;
    }
    if (welcome.status != OTR_OK) {
      fail(
          welcome.status, "{}",
          std::string_view(welcome.text.data(), strnlen(welcome.text.data(), welcome.text.size())));
    }
  } while (descriptors.size() < welcome.descriptors);

  const auto world = static_cast<size_t>(r.world);
  if (descriptors.size() != 1 && descriptors.size() != 1 + world) {
    fail(OTR_E_MISMATCH, "rank 0 sent {} descriptors for {} ranks", descriptors.size(), world);
  }
  Attachment attachment;
  attachment.sockets.push_back(std::move(socket));
  attachment.control = std::move(descriptors.front());
  attachment.processes.assign(std::make_move_iterator(descriptors.begin() + 1),
                              std::make_move_iterator(descriptors.end()));
  return attachment;
}

Attachment join_rank_0(const Rendezvous& r) {
  UniqueFd socket = connect_to_rank_0(r);
  send_hello(socket.get(), r);
  return receive_welcome(std::move(socket), r);
}

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
// What both sides of the rendezvous use.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "core/comm/rendezvous.h"

namespace outrigger::comm {

// Where rank 0 of a job of this user listens.
class SocketAddress {
 public:
  explicit SocketAddress(const std::string& job);
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  [[nodiscard]] socklen_t size() const { return size_; }

 private:
  sockaddr_un address_ = {};
  socklen_t size_;
};

[[nodiscard]] UniqueFd open_socket();

// The user and process at the other end, as the kernel knows them.
struct PeerIdentity {
  uint32_t user;
  int32_t process;
};
[[nodiscard]] PeerIdentity identity_of(int socket);

[[nodiscard]] double seconds_until(Clock::time_point deadline);

// A connected socket to rank 0, or none while it does not listen. Throws OTR_E_SYSTEM if it is
// another user's.
[[nodiscard]] UniqueFd try_connect(const Rendezvous& r);
void send_hello(int socket, const Rendezvous& r);
// Waits for rank 0's verdict.
[[nodiscard]] Attachment receive_welcome(UniqueFd socket, const Rendezvous& r);

}  // namespace outrigger::comm

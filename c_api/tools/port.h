// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace outrigger::tools {

// A port of this host that no one else has. The socket stays open and bound, but does not listen,
// so the system gives the number to no other program, while rank 0 may still listen on it with
// SO_REUSEADDR.
class ReservedPort {
 public:
  ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (socket_ < 0 || setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(socket_, generic, size) != 0 || getsockname(socket_, generic, &size) != 0) {
      if (socket_ >= 0) close(socket_);
      throw std::runtime_error("cannot reserve a port on 127.0.0.1");
    }
    port_ = ntohs(address.sin_port);
  }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  ~ReservedPort() { close(socket_); }

  [[nodiscard]] int number() const noexcept { return port_; }

 private:
  int socket_, port_ = 0;
};

}  // namespace outrigger::tools

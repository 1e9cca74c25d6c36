// SPDX-License-Identifier: Apache-2.0
#include "port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace outrigger::tools {

ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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

ReservedPort::~ReservedPort() { close(socket_); }

}  // namespace outrigger::tools

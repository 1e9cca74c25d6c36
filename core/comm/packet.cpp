// SPDX-License-Identifier: Apache-2.0
#include "core/comm/packet.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace outrigger::comm {
namespace {

struct alignas(cmsghdr) ControlBuffer {
  std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes;
};

bool is_closed(int error) { return error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

}  // namespace

PacketResult send_bytes(int socket, std::span<const std::byte> bytes,
                        std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ControlBuffer control{};
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return PacketResult::done;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return PacketResult::would_block;
  if (is_closed(errno)) return PacketResult::closed;
  fail(OTR_E_SYSTEM, "cannot send to another rank (sendmsg): {}",
       std::generic_category().message(errno));
}

PacketResult receive_bytes(int socket, std::span<std::byte> bytes,
                           std::vector<UniqueFd>& descriptors) {
  iovec part{bytes.data(), bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t got = 0;
  bool reset = false;
  for (;;) {
    got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // A peer that closed with our words unread resets the socket; its own last words lie behind
    // that.
    if (got < 0 && errno == ECONNRESET && !std::exchange(reset, true)) continue;
    if (got >= 0 || errno != EINTR) break;
  }
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return PacketResult::would_block;
    if (is_closed(errno)) return PacketResult::closed;
    fail(OTR_E_SYSTEM, "cannot receive from another rank (recvmsg): {}",
         std::generic_category().message(errno));
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kMostDescriptors> fds;
    const size_t n = std::min((header->cmsg_len - CMSG_LEN(0)) / sizeof(int), fds.size());
    std::memcpy(fds.data(), CMSG_DATA(header), n * sizeof(int));
    for (size_t i = 0; i < n; i++) descriptors.emplace_back(fds[i]);
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) return PacketResult::out_of_descriptors;
  if (got == 0) return PacketResult::closed;
  const bool whole =
      static_cast<size_t>(got) == bytes.size() && (message.msg_flags & MSG_TRUNC) == 0;
  return whole ? PacketResult::done : PacketResult::foreign;
}

bool wait_for_socket(int socket, short events, double seconds) {
  pollfd one{socket, events, 0};
  const int ms = static_cast<int>(std::ceil(std::clamp(seconds, 0.0, 0.1) * 1000));
  return poll(&one, 1, ms) > 0;
}

}  // namespace outrigger::comm

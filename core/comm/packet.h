// SPDX-License-Identifier: Apache-2.0
// Messages between rank 0 and the others: fixed-size structs over a SOCK_SEQPACKET unix socket,
// with file descriptors beside them. Nothing here blocks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "core/comm/control.h"
#include "core/comm/unique_fd.h"
#include "outrigger.h"

namespace outrigger::comm {

inline constexpr size_t kMostDescriptors = 200;  // in one packet; the kernel's limit is 253

// The first two members never change place, so that versions can tell each other apart.
struct PacketHead {
  uint64_t magic = kMagic;
  uint32_t version = kLayoutVersion;
  uint32_t kind = 0;
};

struct Hello {  // a rank to rank 0; with its pidfd, if it has one
  static constexpr uint32_t kKind = 1;
  PacketHead head{.kind = kKind};
  std::array<char, 16> library = {};  // OTR_VERSION_STRING
  int32_t rank = 0, world = 0;
  double seconds_left = 0;
  int64_t process = 0;
};

struct Welcome {  // rank 0's answer; the first of as many as the descriptors need
  static constexpr uint32_t kKind = 2;
  PacketHead head{.kind = kKind};
  int32_t status = OTR_OK;  // else `text` says why nobody is let in
  uint32_t descriptors =
      0;  // in all packets: the control memory, then a pidfd of each rank or none
  std::array<char, sizeof(FailureRecord::text)> text = {};
};

struct Offer {  // rank 0 to a rank, with the memory
  static constexpr uint32_t kKind = 3;
  PacketHead head{.kind = kKind};
  uint64_t channel = 0, operation = 0, bytes = 0;
};

enum class PacketResult { done, would_block, closed, foreign, other_version, out_of_descriptors };

// closed: the peer is no longer there. Throws OTR_E_SYSTEM on anything else.
[[nodiscard]] PacketResult send_bytes(int socket, std::span<const std::byte> bytes,
                                      std::span<const int> descriptors);
// foreign: not exactly bytes.size() bytes. Descriptors are close-on-exec.
[[nodiscard]] PacketResult receive_bytes(int socket, std::span<std::byte> bytes,
                                         std::vector<UniqueFd>& descriptors);

template <typename Packet>
[[nodiscard]] PacketResult send_packet(int socket, const Packet& packet,
                                       std::span<const int> descriptors = {}) {
  static_assert(std::is_trivially_copyable_v<Packet>);
  return send_bytes(socket, std::as_bytes(std::span(&packet, 1)), descriptors);
}

// foreign also: another magic or kind. other_version: packet.head.version says which.
template <typename Packet>
[[nodiscard]] PacketResult receive_packet(int socket, Packet& packet,
                                          std::vector<UniqueFd>& descriptors) {
  static_assert(std::is_trivially_copyable_v<Packet>);
  packet.head = PacketHead{.magic = 0};
  const auto result =
      receive_bytes(socket, std::as_writable_bytes(std::span(&packet, 1)), descriptors);
  if (result != PacketResult::done && result != PacketResult::foreign) return result;
  if (packet.head.magic != kMagic) return PacketResult::foreign;
  if (packet.head.version != kLayoutVersion) return PacketResult::other_version;
  return packet.head.kind == Packet::kKind ? result : PacketResult::foreign;
}

// Waits until the socket can be read (or written), at most `seconds`; false: not yet.
bool wait_for_socket(int socket, short events, double seconds);

}  // namespace outrigger::comm

// SPDX-License-Identifier: Apache-2.0
#include "tests/plugins/nccl/mock_links.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace outrigger::nccl::mock {
namespace {

// An id: where the process that made it has the memory's file.
struct Where {
  char magic[8];
  int32_t process, file;
};
constexpr char kMagic[8] = {'m', 'o', 'c', 'k', 'n', 'c', 'c', 'l'};

// Of a run of bytes in a ring, up to its end and from its beginning.
template <typename Body>
void in_ring(uint64_t at, uint64_t count, const Body& body) {
  const uint64_t first = std::min(count, Ring::kBytes - at % Ring::kBytes);
  body(at % Ring::kBytes, 0, first);
  body(0, first, count - first);
}

// Bytes [done, done + count) of a message, whose first eight are its number.
template <typename Body>
void in_message(Message& message, uint64_t& number, uint64_t count, const Body& body) {
  const uint64_t head = sizeof number;
  if (message.done < head) {
    const uint64_t n = std::min(count, head - message.done);
    body(reinterpret_cast<std::byte*>(&number) + message.done, n);
    message.done += n;
    count -= n;
  }
  if (count == 0) return;
  body(message.bytes.data() + (message.done - head), count);
  message.done += count;
}

bool send(Ring& ring, Message& message) {
  const uint64_t at = ring.written.load(std::memory_order_relaxed);
  const uint64_t room = Ring::kBytes - (at - ring.read.load(std::memory_order_acquire));
  const uint64_t count = std::min(room, message.all() - message.done);
  uint64_t number = message.bytes.size(), to = at;
  in_message(message, number, count, [&](const std::byte* from, uint64_t n) {
    in_ring(to, n, [&](uint64_t place, uint64_t skip, uint64_t m) {
      std::memcpy(ring.bytes.data() + place, from + skip, m);
    });
    to += n;
  });
  ring.written.store(to, std::memory_order_release);
  return count > 0;
}

bool receive(Ring& ring, Message& message, bool& agrees) {
  uint64_t at = ring.read.load(std::memory_order_relaxed);
  const uint64_t there = ring.written.load(std::memory_order_acquire) - at;
  if (message.done == 0) {  // the number at once
    if (there < sizeof(uint64_t)) return false;
    uint64_t number = 0;
    in_ring(at, sizeof number, [&](uint64_t place, uint64_t skip, uint64_t m) {
      std::memcpy(reinterpret_cast<std::byte*>(&number) + skip, ring.bytes.data() + place, m);
    });
    if (number != message.bytes.size()) {
      agrees = false;
      return false;
    }
  }
  const uint64_t count = std::min(there, message.all() - message.done);
  uint64_t number = 0;
  in_message(message, number, count, [&](std::byte* to, uint64_t n) {
    in_ring(at, n, [&](uint64_t place, uint64_t skip, uint64_t m) {
      std::memcpy(to + skip, ring.bytes.data() + place, m);
    });
    at += n;
  });
  ring.read.store(at, std::memory_order_release);
  return count > 0;
}

// The first of each peer that is not done.
template <typename Body>
bool move_first(std::vector<Message>& messages, const Body& body) {
  bool moved = false;
  std::array<bool, kMostRanks> busy{};
  for (Message& message : messages) {
    bool& is_busy = busy.at(static_cast<size_t>(message.peer));
    if (is_busy || message.done == message.all()) continue;
    is_busy = true;
    moved = body(message) || moved;
  }
  return moved;
}

}  // namespace

UniqueId Links::make() {
  Where where{};
  std::memcpy(where.magic, kMagic, sizeof kMagic);
  where.process = getpid();
  where.file = memfd_create("mock nccl", MFD_CLOEXEC);  // as long as the process lives
  if (where.file < 0 || ftruncate(where.file, sizeof(Shared)) != 0) {
    throw std::runtime_error("no memory file");
  }
  UniqueId id{};
  std::memcpy(&id, &where, sizeof where);
  return id;
}

Links::Links(const UniqueId& id) {
  Where where{};
  std::memcpy(&where, &id, sizeof where);
  if (std::memcmp(where.magic, kMagic, sizeof kMagic) != 0) throw std::runtime_error("no id");
  const std::string path =
      "/proc/" + std::to_string(where.process) + "/fd/" + std::to_string(where.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw std::runtime_error("the process of the id has ended");
  void* const at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED) throw std::runtime_error("no memory to map");
  shared_ = static_cast<Shared*>(at);
}

Links::~Links() { munmap(shared_, sizeof(Shared)); }

bool move(Shared& shared, int rank, std::vector<Message>& sends, std::vector<Message>& receives,
          bool& agrees) {
  const auto ring = [&](int from, int to) -> Ring& {
    return shared.rings.at(static_cast<size_t>(from)).at(static_cast<size_t>(to));
  };
  const bool sent = move_first(sends, [&](Message& m) { return send(ring(rank, m.peer), m); });
  const bool received =
      move_first(receives, [&](Message& m) { return receive(ring(m.peer, rank), m, agrees); });
  return sent || received;
}

bool is_done(const std::vector<Message>& messages) {
  return std::ranges::all_of(messages, [](const Message& m) { return m.done == m.all(); });
}

}  // namespace outrigger::nccl::mock

// SPDX-License-Identifier: Apache-2.0
// Finds work that is not ordered although it touches the same memory: each stream has a vector
// clock, events and waits join them, and every touch is compared with the last ones of the same
// bytes. What the host does with its own memory is not seen; all host threads count as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace outrigger::simulated {

// Of each stream, how much of its work is done before.
using Clock = std::map<uint64_t, uint64_t>;
void join(Clock& into, const Clock& from);

struct Touch {
  const std::byte* data;
  size_t bytes;
  bool writes;
};

// Not safe for use by several threads.
class Races {
 public:
  // Work is given to a stream. Names the first race; empty: there is none.
  [[nodiscard]] std::string give(uint64_t stream, const char* what, std::span<const Touch> touches);
  [[nodiscard]] Clock at(uint64_t stream) const;
  void stream_waited(uint64_t stream, const Clock& event);
  // The host has waited, and what any thread gives from now on comes after.
  void host_waited(const Clock& event);
  void host_waited_for_all();
  // The memory belongs to nobody any more.
  void forget(const std::byte* data, size_t bytes);

 private:
  struct Touched {
    const std::byte *begin, *end;
    bool writes;
    uint64_t stream, count;
    const char* what;
  };
  [[nodiscard]] std::string check(uint64_t stream, const char* what, const Touch& touch);
  Clock host_;
  std::map<uint64_t, Clock> streams_;
  std::map<uintptr_t, std::vector<Touched>> touched_;  // by block of memory
};

}  // namespace outrigger::simulated

// SPDX-License-Identifier: Apache-2.0
#include "plugins/simulated/races.h"

#include <algorithm>

namespace outrigger::simulated {
namespace {

constexpr uintptr_t kBlock = uintptr_t{1} << 20;

// Calls body(block, begin, end) for each block's part of the memory.
template <typename Body>
void for_each_block(const std::byte* data, size_t bytes, const Body& body) {
  const std::byte* const end = data + bytes;
  for (const std::byte* at = data; at < end;) {
    const uintptr_t block = reinterpret_cast<uintptr_t>(at) / kBlock;
    const size_t left = (block + 1) * kBlock - reinterpret_cast<uintptr_t>(at);
    const std::byte* const next = at + std::min(left, static_cast<size_t>(end - at));
    body(block, at, next);
    at = next;
  }
}

uint64_t part(const Clock& clock, uint64_t stream) {
  const auto found = clock.find(stream);
  return found == clock.end() ? 0 : found->second;
}

}  // namespace

void join(Clock& into, const Clock& from) {
  for (const auto& [stream, count] : from) {
    uint64_t& own = into[stream];
    own = std::max(own, count);
  }
}

std::string Races::give(uint64_t stream, const char* what, std::span<const Touch> touches) {
  Clock& clock = streams_[stream];
  join(clock, host_);
  ++clock[stream];
  std::string race;
  for (const Touch& touch : touches) {
    if (race.empty()) race = check(stream, what, touch);
  }
  return race;
}

std::string Races::check(uint64_t stream, const char* what, const Touch& touch) {
  const Clock& clock = streams_[stream];
  std::string race;
  for_each_block(touch.data, touch.bytes, [&](uintptr_t block, const auto* begin, const auto* end) {
    std::vector<Touched>& last = touched_[block];
    std::erase_if(last, [&](const Touched& t) {
      if (t.count <= part(host_, t.stream)) return true;
      const bool conflicts = t.begin < end && begin < t.end && (t.writes || touch.writes);
      const bool ordered = t.count <= part(clock, t.stream);
      if (conflicts && !ordered && race.empty()) {
        race = std::string("a race: ") + what + " on stream " + std::to_string(stream) +
               (touch.writes ? " writes" : " reads") + " what " + t.what + " on stream " +
               std::to_string(t.stream) + (t.writes ? " writes" : " reads") +
               ", and neither waits for the other";
      }
      const bool covered = begin <= t.begin && t.end <= end;
      return ordered && covered && (touch.writes || !t.writes);
    });
    last.push_back({begin, end, touch.writes, stream, part(clock, stream), what});
  });
  return race;
}

Clock Races::at(uint64_t stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? Clock{} : found->second;
}

void Races::stream_waited(uint64_t stream, const Clock& event) { join(streams_[stream], event); }
void Races::host_waited(const Clock& event) { join(host_, event); }
void Races::host_waited_for_all() {
  for (const auto& [stream, clock] : streams_) join(host_, clock);
}

void Races::forget(const std::byte* data, size_t bytes) {
  for_each_block(data, bytes, [&](uintptr_t block, const auto* begin, const auto* end) {
    const auto found = touched_.find(block);
    if (found == touched_.end()) return;
    std::erase_if(found->second,
                  [&](const Touched& t) { return begin <= t.begin && t.end <= end; });
    if (found->second.empty()) touched_.erase(found);
  });
}

}  // namespace outrigger::simulated

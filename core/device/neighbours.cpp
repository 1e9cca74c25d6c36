// SPDX-License-Identifier: Apache-2.0
#include "core/device/neighbours.h"

#include <cstdint>

namespace outrigger::device {
namespace {

constexpr size_t kPage = 4096, kLine = 64;

uint32_t hash_of(uintptr_t address) {
  // Bits 12 to 19, each with one of 27, 26, 25, 20, 21, 22, 23 and 24.
  const auto page = static_cast<uint32_t>(address >> 12);
  const uint32_t low = page & 0xff, high = (page >> 8) & 0xff;
  const uint32_t reversed = (high >> 7 & 1) | (high >> 5 & 2) | (high >> 3 & 4);
  return low ^ (reversed | (high & 0x1f) << 3);
}

// How often two arrays have lines of one hash while they are walked through.
int clashes(uintptr_t begin, size_t bytes, const Neighbour& other) {
  constexpr size_t kSamples = 256;
  int sum = 0;
  for (size_t i = 0; i < kSamples; ++i) {
    const uint32_t here = hash_of(begin + bytes / kSamples * i);
    const uintptr_t there = reinterpret_cast<uintptr_t>(other.data) + other.bytes / kSamples * i;
    // The place of a page that one is at, the other has in this page of its own or in the next.
    sum += here == hash_of(there) ? 2 : 0;
    sum += here == hash_of(there - kPage) || here == hash_of(there + kPage) ? 1 : 0;
  }
  return sum;
}

}  // namespace

size_t bytes_apart(const std::byte* begin, size_t bytes, std::span<const Neighbour> others) {
  if (others.empty()) return 0;
  const auto place = reinterpret_cast<uintptr_t>(others[0].data) / kLine * kLine;
  const size_t first = (place + kPage / 2) % kPage;
  size_t best = first;
  int least = -1;
  for (size_t apart = first; apart <= kMostApart; apart += kPage) {
    int sum = 0;
    for (const Neighbour& other : others) {
      sum += clashes(reinterpret_cast<uintptr_t>(begin) + apart, bytes, other);
    }
    if (least >= 0 && sum >= least) continue;
    best = apart;
    least = sum;
    if (sum == 0) break;
  }
  return best;
}

}  // namespace outrigger::device

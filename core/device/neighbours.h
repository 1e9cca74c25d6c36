// SPDX-License-Identifier: Apache-2.0
// Arrays that a step walks through side by side, and how they stay out of each other's way.
#pragma once

#include <cstddef>
#include <span>

namespace outrigger::device {

struct Neighbour {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// From here on it matters, and the pages beside an array are little.
inline constexpr size_t kLargeArray = size_t{16} << 20;

// The most that the next returns.
inline constexpr size_t kMostApart = size_t{64} * 4096;

// How many bytes behind `begin`, which begins a page, an array is to begin beside the others: a
// multiple of a line, half a page from the first of them. AMD's first-level caches take a line for
// another at the same place of a page if a hash of bits 12 to 27 of the address is the same, and
// drop it. Arrays whose distance is near 2^28 are so all along. The hash: Lipp et al. 2020, "Take A
// Way", section 3. Processors without it do not mind.
[[nodiscard]] size_t bytes_apart(const std::byte* begin, size_t bytes,
                                 std::span<const Neighbour> others);

}  // namespace outrigger::device

// SPDX-License-Identifier: Apache-2.0
#include "core/memory/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace outrigger::memory::test {
namespace {

// Every length around a few lines, from and to every place in a line: all of it, and nothing else.
TEST(Copy, HasEveryByteAndNoOther) {
  constexpr size_t kRoom = 512;
  std::array<std::byte, kRoom> from{}, expected{};
  alignas(64) std::array<std::byte, kRoom> to{};
  for (size_t i = 0; i < kRoom; ++i) from.at(i) = static_cast<std::byte>(i * 7 + i / 256);
  for (size_t begin = 0; begin < 65; ++begin) {
    for (size_t length = 0; length < 270; ++length) {
      to.fill(std::byte{99});
      expected.fill(std::byte{99});
      const auto part = std::span(from).subspan((begin * 3) % 61, length);
      std::ranges::copy(part, expected.begin() + static_cast<ptrdiff_t>(begin));
      copy_past_caches(to.data() + begin, part);
      ASSERT_TRUE(to == expected) << begin << " " << length;
    }
  }
}

}  // namespace
}  // namespace outrigger::memory::test

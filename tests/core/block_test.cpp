// SPDX-License-Identifier: Apache-2.0
#include "core/memory/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace outrigger::memory {
namespace {

TEST(BlockTest, MomentsBeginAtDifferentPlacesOfAPage) {
  Ledger ledger;
  constexpr int64_t kBytes = int64_t{1} << 28;  // never touched
  const Block exp_avg(ledger, Purpose::exp_avg, kBytes);
  const Block exp_avg_sq(ledger, Purpose::exp_avg_sq, kBytes);
  const auto first = reinterpret_cast<uintptr_t>(exp_avg.data());
  const auto second = reinterpret_cast<uintptr_t>(exp_avg_sq.data());
  EXPECT_EQ(first % 64, 0);
  EXPECT_EQ(second % 64, 0);
  EXPECT_EQ((first - second) % 4096, 2048);
}

TEST(BlockTest, EverySizeIsZeroToItsEndAndMoves) {
  for (const int64_t bytes :
       {int64_t{1}, int64_t{4096}, int64_t{1} << 20, (int64_t{1} << 20) + 1}) {
    Ledger ledger;
    {
      Block first(ledger, Purpose::exp_avg_sq, bytes);
      const auto* data = first.data();
      EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
      first.data()[bytes - 1] = std::byte{1};
      Block second(ledger, Purpose::master, bytes);
      second = std::move(first);
      EXPECT_EQ(second.data(), data);
      EXPECT_EQ(second.data()[bytes - 1], std::byte{1});
    }
    EXPECT_EQ(ledger.on_touch(), 0);
  }
}

}  // namespace
}  // namespace outrigger::memory

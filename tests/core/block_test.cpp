// SPDX-License-Identifier: Apache-2.0
#include "core/memory/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace outrigger::memory {
namespace {

const std::byte* at(uintptr_t address) { return reinterpret_cast<const std::byte*>(address); }

// Lipp et al. 2020, "Take A Way": the XOR of these pairs of address bits.
int hash_of(const std::byte* address) {
  constexpr std::array<std::pair<int, int>, 8> kPairs{
      {{12, 27}, {13, 26}, {14, 25}, {15, 20}, {16, 21}, {17, 22}, {18, 23}, {19, 24}}};
  const auto bits = reinterpret_cast<uintptr_t>(address);
  int hash = 0;
  for (const auto& [low, high] : kPairs) {
    hash = hash * 2 + static_cast<int>((bits >> low ^ bits >> high) & 1);
  }
  return hash;
}

// The part of a common walk on which two arrays have one hash.
double clashes(const std::byte* a, const std::byte* b, size_t bytes) {
  int same = 0;
  constexpr int kSamples = 4096;
  for (int i = 0; i < kSamples; ++i) {
    const size_t here = bytes / kSamples * static_cast<size_t>(i);
    same += hash_of(a + here) == hash_of(b + here) ? 1 : 0;
  }
  return static_cast<double>(same) / kSamples;
}

TEST(Neighbours, StayApartWhereverTheOthersAre) {
  constexpr size_t kBytes = size_t{1} << 28;
  const std::byte* begin = at(uintptr_t{1} << 44);
  EXPECT_EQ(device::bytes_apart(begin, kBytes, {}), 0U);
  for (const int64_t distance : {int64_t{0}, int64_t{1} << 28, int64_t{1} << 27,
                                 (int64_t{1} << 27) + 4096, int64_t{33} << 20, int64_t{3} << 26}) {
    std::vector<device::Neighbour> others = {{begin - distance, kBytes},
                                             {begin + distance, kBytes}};
    EXPECT_EQ(
        device::bytes_apart(begin, kBytes, std::vector<device::Neighbour>{{begin + 100, kBytes}}) %
            4096,
        2112U);
    for (int array = 0; array < 4; ++array) {
      const size_t apart = device::bytes_apart(begin, kBytes, others);
      EXPECT_EQ(apart % 4096, 2048U);
      EXPECT_LE(apart, device::kMostApart);
      for (const device::Neighbour& other : others) {
        EXPECT_LT(clashes(begin + apart, other.data, kBytes), 0.05) << distance;
      }
      others.push_back({begin + apart, kBytes});
    }
  }
}

TEST(BlockTest, LargeBlocksStayApart) {
  Ledger ledger;
  constexpr int64_t kBytes = int64_t{1} << 28;  // never touched
  const std::byte* callers = at(uintptr_t{1} << 45);
  ledger.add_neighbour({callers, size_t{kBytes}});
  const Block first(ledger, Purpose::exp_avg, kBytes), second(ledger, Purpose::exp_avg_sq, kBytes);
  EXPECT_LT(clashes(first.data(), second.data(), size_t{kBytes}), 0.05);
  EXPECT_LT(clashes(first.data(), callers, size_t{kBytes}), 0.05);
  EXPECT_LT(clashes(second.data(), callers, size_t{kBytes}), 0.05);
  const Block small(ledger, Purpose::master, 1000), initial(ledger, Purpose::initial, kBytes);
  EXPECT_EQ(ledger.neighbours().size(), 3U);
}

TEST(BlockTest, EverySizeIsZeroToItsEndAndMoves) {
  for (const int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{1} << 20, (int64_t{1} << 20) + 1,
                              (int64_t{1} << 24) + 1}) {
    Ledger ledger;
    {
      Block first(ledger, Purpose::exp_avg_sq, bytes);
      const auto* data = first.data();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
      EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
      first.data()[bytes - 1] = std::byte{1};
      Block second(ledger, Purpose::master, bytes);
      second = std::move(first);
      EXPECT_EQ(second.data(), data);
      EXPECT_EQ(second.data()[bytes - 1], std::byte{1});
    }
    EXPECT_EQ(ledger.untouched(), 0);
    EXPECT_TRUE(ledger.neighbours().empty());
  }
}

TEST(PoolTest, BlocksFollowOneAnotherAndTheLastFreesThem) {
  Ledger one, other;
  constexpr int64_t kBytes = 1000, kMany = 2000;  // in all beyond a MiB: pages of its own
  std::vector<Block> blocks;
  {
    Pool pool(Purpose::exp_avg, kMany * Pool::room_of(kBytes), {});
    for (int64_t i = 0; i < kMany; ++i) {
      blocks.emplace_back(i % 2 == 0 ? one : other, Purpose::exp_avg, kBytes, pool);
    }
    EXPECT_EQ(blocks[0].data(), pool.whole().data);
    EXPECT_EQ(pool.whole().bytes, static_cast<size_t>(kMany * 1024));
    EXPECT_FALSE(Block(one, Purpose::exp_avg, 0, pool));
  }
  EXPECT_EQ(one.entries().back().resident, kMany / 2 * kBytes);
  EXPECT_EQ(one.untouched(), kMany / 2 * kBytes);
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::byte* data = blocks[i].data();
    EXPECT_EQ(data, blocks[0].data() + 1024 * i);
    EXPECT_TRUE(std::all_of(data, data + kBytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(data, kBytes, static_cast<std::byte>(i % 251));
  }
  const Block last = std::move(blocks[kMany / 2]);
  blocks.clear();
  EXPECT_EQ(one.entries().back().resident, kBytes);
  EXPECT_EQ(other.entries().back().resident, 0);
  EXPECT_TRUE(std::all_of(last.data(), last.data() + kBytes,
                          [](std::byte b) { return b == std::byte{kMany / 2 % 251}; }));
}

TEST(PoolTest, SaysWhatIsNotToBeHad) {
  try {
    const Pool pool(Purpose::exp_avg_sq, int64_t{1} << 60, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), OTR_E_OUT_OF_MEMORY);
    EXPECT_NE(std::string(error.what()).find("exp_avg_sq"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace outrigger::memory

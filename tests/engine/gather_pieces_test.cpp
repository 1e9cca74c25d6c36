// SPDX-License-Identifier: Apache-2.0
// Parameters made whole from pieces, in operations of which every owner that is not through sends.
#include "core/engine/gather_pieces.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>

#include "core/comm/forwarding.h"
#include "core/device/host.h"

namespace outrigger::engine {
namespace {

constexpr int32_t kRanks = 3;
// Of one parameter: of two ranks many operations' worth, of the last one hardly anything.
constexpr int64_t kCounts[kRanks] = {2'000'128, 1'500'160, 5};

float value(int32_t rank, int64_t i) { return static_cast<float>((i * 7 + rank) % 1000 - 500); }

// Keeps the bytes of each rank in each operation.
class Noted final : public comm::Forwarding {
 public:
  using Forwarding::Forwarding;
  std::unique_ptr<Communicator> duplicate(std::string_view name) override {
    return inner().duplicate(name);
  }
  void all_gather_parts(std::span<const comm::Part> parts, std::string_view label) override {
    auto& by_rank = operations.emplace_back();
    for (const comm::Part& part : parts) by_rank[part.rank] += part.bytes.size();
    inner().all_gather_parts(parts, label);
  }
  std::vector<std::map<int32_t, size_t>> operations;
};

class GatherPieces : public testing::TestWithParam<bool> {};  // as integers
INSTANTIATE_TEST_SUITE_P(AsTheyAreAndAsIntegers, GatherPieces, testing::Bool());

TEST_P(GatherPieces, AllOwnersSendAtATime) {
  auto groups = comm::make_threads(kRanks, {.timeout = 60});
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([rank, made = std::move(groups[static_cast<size_t>(rank)])]() mutable {
      Noted group(std::move(made));
      device::Host host(nullptr);
      memory::Ledger ledger;
      Bounce bounce(host, ledger, config::Pin::off, GetParam() ? Bounce::kBytes : 0);
      std::vector<float> all(kCounts[0] + kCounts[1] + kCounts[2]);
      Whole whole{{}, reinterpret_cast<std::byte*>(all.data())};
      int64_t first = 0;
      for (int32_t r = 0; r < kRanks; first += kCounts[r++]) {
        whole.owners.push_back({r, {0, first, kCounts[r], first, 0}});
      }
      std::vector<float> mine;
      for (int64_t i = 0; i < kCounts[rank]; ++i) mine.push_back(value(rank, i));
      const auto at = [&](const layout::Piece&) {
        return reinterpret_cast<const std::byte*>(mine.data());
      };
      size_t done = 0;
      gather_pieces(group, host, bounce, std::span(&whole, 1),
                    {kernels::Format::float32, GetParam() ? &host : nullptr}, {at}, "pieces", done);
      EXPECT_EQ(done, group.operations.size());
      const double most = GetParam() ? 500.0 / 254 * 1.001 : 0;
      first = 0;
      for (int32_t r = 0; r < kRanks; first += kCounts[r++]) {
        for (int64_t i = 0; i < kCounts[r]; ++i) {
          ASSERT_NEAR(all[static_cast<size_t>(first + i)], value(r, i), most) << r << ", " << i;
        }
      }
      // Both large owners in every operation until the smaller one is through, as much of each.
      ASSERT_GE(group.operations.size(), 3U);
      EXPECT_EQ(group.operations[0].size(), kRanks) << "the small one, too";
      for (size_t i = 0; i + 2 < group.operations.size(); ++i) {
        EXPECT_GT(group.operations[i][0], 0U) << i;
        EXPECT_EQ(group.operations[i][0], group.operations[i][1]) << i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace outrigger::engine

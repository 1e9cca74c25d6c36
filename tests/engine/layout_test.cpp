// SPDX-License-Identifier: Apache-2.0
#include "core/layout/layout.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/kernels.h"

namespace outrigger::layout {
namespace {

Model model_of(const std::vector<int64_t>& counts) {
  Model model;
  for (size_t i = 0; i < counts.size(); ++i) {
    Parameter p;
    p.name = "p" + std::to_string(i);
    p.shape = {counts[i]};
    p.count = counts[i];
    p.trainable = i % 5 != 4;
    model.add(p, "default", -1);
  }
  return model;
}

// Every element of every trainable parameter is owned once, cuts fall on leaves, nothing overlaps.
TEST(Layout, OwnsEveryElementOnce) {
  const std::vector<int64_t> counts{1, 0, 255, 256, 257, 7, 1000, 3, 65536, 511, 2, 0, 12345};
  const Model model = model_of(counts);
  for (int32_t world = 1; world <= 5; ++world) {
    for (const int64_t bucket : {int64_t{1}, int64_t{700}, int64_t{5000}, int64_t{1} << 40}) {
      const Layout layout(model, world, bucket);
      std::vector<std::set<int64_t>> seen(counts.size());
      for (int32_t rank = 0; rank < world; ++rank) {
        int64_t last = -1;
        for (const Piece& piece : layout.pieces_of_rank(model, rank)) {
          EXPECT_EQ(piece.first % kernels::kLeaf, 0);
          EXPECT_EQ(piece.flat, layout.position(piece.parameter).flat + piece.first);
          EXPECT_GT(piece.shard, last) << "shards are filled in flat order";
          last = piece.shard + piece.count - 1;
          EXPECT_LT(last, layout.shard_elements());
          for (int64_t e = piece.first; e < piece.first + piece.count; ++e) {
            EXPECT_TRUE(seen[static_cast<size_t>(piece.parameter)].insert(e).second);
          }
        }
      }
      for (size_t id = 0; id < counts.size(); ++id) {
        const bool owned = model.at(static_cast<int64_t>(id)).trainable;
        EXPECT_EQ(static_cast<int64_t>(seen[id].size()), owned ? counts[id] : 0);
      }
      EXPECT_EQ(layout.trainable_elements() % (world * kernels::kLeaf), 0);
    }
  }
}

TEST(Layout, LastParametersComeFirst) {
  const Model model = model_of({300, 300, 300, 300});
  const Layout layout(model, 1, 700);
  ASSERT_EQ(layout.buckets().size(), 4u);  // 512 padded elements each: two would exceed 700
  EXPECT_EQ(layout.bucket(0).parameters, std::vector<int64_t>{3});
  EXPECT_EQ(layout.position(0).flat, 0);
  EXPECT_EQ(layout.parameter_at(0), 0);
  EXPECT_EQ(layout.parameter_at(512), 1);
}

TEST(Layout, KeepsTheFirstParametersInBucketsOfTheirOwn) {
  const Model model = model_of({300, 300, 300, 300});
  const Layout layout(model, 2, 1 << 20, 1);
  ASSERT_EQ(layout.buckets().size(), 2U);
  EXPECT_EQ(layout.bucket(0).parameters, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(layout.bucket(1).parameters, std::vector<int64_t>{0});
  EXPECT_EQ(layout.position(0).flat, 0);
  EXPECT_EQ(layout.bucket(0).begin, 512);
  EXPECT_EQ(Layout(model, 2, 1 << 20, 4).buckets().size(), 1U) << "all of them";
  EXPECT_EQ(Layout(model, 2, 600, 2).buckets().size(), 4U) << "full before";
}

TEST(Layout, OwnersAgreeWithPieces) {
  const Model model = model_of({5000, 10, 700});
  const Layout layout(model, 3, 1 << 20);
  int64_t total = 0;
  for (const auto& [rank, piece] : layout.owners(model, 0)) {
    EXPECT_EQ(piece.first, total);
    total += piece.count;
  }
  EXPECT_EQ(total, 5000);
}

}  // namespace
}  // namespace outrigger::layout

// SPDX-License-Identifier: Apache-2.0
// 64 ranks on 8 hosts: every rank of a whole training has the bits of the sum tree, and not those
// of one level.
#include <gtest/gtest.h>

#include "tests/engine/model.h"

namespace outrigger::test {
namespace {

constexpr int32_t kRanks = 64, kHosts = 8;

class Hosts : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Precisions, Hosts,
                         testing::Values("float32", "bf16, float32 master, float32 accumulator"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, info.param[0] == 'b' ? 4 : 7);
                         });

TEST_P(Hosts, EveryRankOf64HasTheTreesBits) {
  Case c{Provider::threads, kRanks, 0, GetParam(), "micro_step", 2, 0.5};
  c.bucket = 20000;  // several
  c.hosts = kHosts;
  const Bytes expected = simulate(c).bytes();
  Case flat = c;
  flat.hosts = 0;
  EXPECT_NE(first_difference(simulate(flat).bytes(), expected), "") << "the order shows";
  for (const int32_t stage : {1, 2, 3}) {
    c.stage = stage;
    const auto results = run_ranks(
        c.provider, c.world,
        [&](int32_t rank, otr_context* context, otr_comm* comm) {
          return train(c, rank, context, comm).bytes();
        },
        120);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      ASSERT_EQ(results[rank].error, "") << text_of(c) << " rank " << rank;
      EXPECT_EQ(first_difference(results[rank].bytes, expected), "") << text_of(c) << " " << rank;
    }
  }
}

}  // namespace
}  // namespace outrigger::test

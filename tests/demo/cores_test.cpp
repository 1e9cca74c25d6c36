// SPDX-License-Identifier: Apache-2.0
// Which cores `outrigger run` gives to which rank.
#include "c_api/tools/cores.h"

#include <gtest/gtest.h>

namespace outrigger::tools {
namespace {

Json machine_of(const char* order) {
  Json machine;
  machine["cores"]["order"] = Json::parse(order);
  return machine;
}

// Two packages of four cores with two threads each, numbered alternately over the packages.
constexpr const char* kTwoPackages = "[0,8,2,10,4,12,6,14,1,9,3,11,5,13,7,15]";

Cores shares_of(const Cores& cores, int workers, const char* order) {
  const Cores all = in_machine_order(cores, machine_of(order));
  Cores joined;
  for (int rank = 0; rank < workers; ++rank) {
    const Cores share = share_of(all, rank, workers);
    joined.insert(joined.end(), share.begin(), share.end());
  }
  return joined;
}

TEST(Cores, SharesFollowTheMachine) {
  Cores all(16);
  for (int core = 0; core < 16; ++core) all[static_cast<size_t>(core)] = core;
  EXPECT_EQ(shares_of(all, 2, kTwoPackages),
            (Cores{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}));
  EXPECT_EQ(shares_of(all, 8, kTwoPackages),
            (Cores{0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13, 7, 15}));
  EXPECT_EQ(shares_of({1, 2, 3, 4}, 2, kTwoPackages), (Cores{2, 4, 1, 3}));
  EXPECT_EQ(share_of(in_machine_order({0, 1, 8}, machine_of(kTwoPackages)), 1, 4), Cores{8})
      << "fewer cores than ranks: one in turn";
}

TEST(Cores, WhatTheMachineDoesNotTellChangesNothing) {
  EXPECT_EQ(shares_of({3, 5, 7}, 3, "null"), (Cores{3, 5, 7}));
  EXPECT_EQ(shares_of({3, 5, 7}, 3, "[]"), (Cores{3, 5, 7}));
  EXPECT_EQ(shares_of({3, 5, 7}, 3, "[7, 99]"), (Cores{7, 3, 5}));
  EXPECT_TRUE(shares_of({}, 2, kTwoPackages).empty());
}

}  // namespace
}  // namespace outrigger::tools

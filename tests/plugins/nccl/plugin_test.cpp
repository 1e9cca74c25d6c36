// SPDX-License-Identifier: Apache-2.0
// The NCCL plugin's table on the mock library: what each rank has in its device's memory
// afterwards, in the order of its streams, and what becomes of failures.
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "nccl_support.h"

namespace {

using namespace otr_test;

// Different on each rank, for each other, at each place.
std::vector<unsigned char> bytes_for(int32_t from, int32_t to, size_t count) {
  std::vector<unsigned char> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] =
        static_cast<unsigned char>(i * 7 + static_cast<size_t>(from * 31 + to * 101 + 5) + i / 251);
  }
  return bytes;
}

otr_plugin_transfer transfer(int32_t peer, void* data, size_t bytes) {
  return {sizeof(otr_plugin_transfer), peer, data, bytes};
}

int32_t copy_on_device(NcclRank& r, void* to, const void* from, size_t bytes) {
  return cuda_table().copy(r.device, to, from, bytes, OTR_PLUGIN_ON_DEVICE, r.stream);
}

// What is sent is written in the stream just before, and what came is read in it just after.
TEST(NcclPlugin, BytesGoBetweenAllRanksInTheStreamsOrder) {
  for (int32_t world = 1; world <= 4; ++world) {
    for (const size_t count : {size_t{1}, size_t{4096}, size_t{100003}}) {
      on_ranks(world, [&](NcclRank& r) {
        std::vector<otr_plugin_transfer> sends, receives;
        std::vector<unsigned char*> read;
        for (int32_t peer = 0; peer < world; ++peer) {
          unsigned char* const from = r.put(bytes_for(r.rank, peer, count));
          void* const sent = r.allocate(count);
          ASSERT_EQ(copy_on_device(r, sent, from, count), OTR_OK);
          sends.push_back(transfer(peer, sent, count));
          receives.push_back(transfer(peer, r.allocate(count), count));
        }
        receives.push_back(transfer(0, nullptr, 0));  // nothing
        ASSERT_EQ(nccl_table().exchange(r.collective, sends.data(), world, receives.data(),
                                        world + 1, r.stream),
                  OTR_OK);
        r.need_ready();
        for (int32_t peer = 0; peer < world; ++peer) {
          read.push_back(static_cast<unsigned char*>(r.allocate(count)));
          const void* const came = receives[static_cast<size_t>(peer)].data;
          ASSERT_EQ(copy_on_device(r, read.back(), came, count), OTR_OK);
        }
        for (int32_t peer = 0; peer < world; ++peer) {
          EXPECT_EQ(r.get(read[static_cast<size_t>(peer)], count), bytes_for(peer, r.rank, count))
              << "world " << world << ", from " << peer << " to " << r.rank;
        }
      });
    }
  }
  expect_nothing_held_by_nccl();
  expect_nothing_held();
}

// Two messages of one pair in a group come in their order.
TEST(NcclPlugin, APairsMessagesKeepTheirOrder) {
  on_ranks(2, [](NcclRank& r) {
    const int32_t other = 1 - r.rank;
    const auto first = bytes_for(r.rank, 7, 50), second = bytes_for(r.rank, 9, 50000);
    const std::vector<otr_plugin_transfer> sends{transfer(other, r.put(first), first.size()),
                                                 transfer(other, r.put(second), second.size())};
    const std::vector<otr_plugin_transfer> receives{transfer(other, r.allocate(50), 50),
                                                    transfer(other, r.allocate(50000), 50000)};
    ASSERT_EQ(nccl_table().exchange(r.collective, sends.data(), 2, receives.data(), 2, r.stream),
              OTR_OK);
    r.need_ready();
    EXPECT_EQ(r.get(static_cast<unsigned char*>(receives[0].data), 50), bytes_for(other, 7, 50));
    EXPECT_EQ(r.get(static_cast<unsigned char*>(receives[1].data), 50000),
              bytes_for(other, 9, 50000));
  });
}

TEST(NcclPlugin, EveryRankGathersAll) {
  for (int32_t world = 1; world <= 4; ++world) {
    for (const bool in_place : {true, false}) {
      constexpr size_t kCount = 30011;
      on_ranks(world, [&](NcclRank& r) {
        auto* const all = static_cast<unsigned char*>(r.allocate(kCount * 4));
        unsigned char* const mine = r.put(bytes_for(r.rank, 40, kCount));
        unsigned char* const place = all + static_cast<size_t>(r.rank) * kCount;
        if (in_place && copy_on_device(r, place, mine, kCount) != OTR_OK) throw Refused(-1, "");
        ASSERT_EQ(
            nccl_table().all_gather(r.collective, in_place ? place : mine, all, kCount, r.stream),
            OTR_OK);
        r.need_ready();
        for (int32_t from = 0; from < world; ++from) {
          EXPECT_EQ(r.get(all + static_cast<size_t>(from) * kCount, kCount),
                    bytes_for(from, 40, kCount));
        }
        EXPECT_EQ(nccl_table().all_gather(r.collective, mine, all, 0, r.stream), OTR_OK);
      });
    }
  }
  expect_nothing_held_by_nccl();
}

float value_of(int32_t rank, size_t i) {
  return std::ldexp(
      1.F / (static_cast<float>((i * 37 + static_cast<size_t>(rank) * 11) % 97) - 48.5F),
      static_cast<int>((i + static_cast<size_t>(rank) * 5) % 23) - 11);
}

// The order is the mock's: behind the slice's rank, around, and to it. Ranked sums are others.
TEST(NcclPlugin, SumsAreScattered) {
  size_t other_than_ranked = 0;
  for (int32_t world = 1; world <= 4; ++world) {
    constexpr size_t kCount = 1500;
    on_ranks(world, [&](NcclRank& r) {
      std::vector<float> values;
      for (size_t i = 0; i < kCount * static_cast<size_t>(world); ++i) {
        values.push_back(value_of(r.rank, i));
      }
      auto* const sum = static_cast<float*>(r.allocate(kCount * 4));
      ASSERT_EQ(nccl_table().reduce_scatter(r.collective, r.put(values), sum, kCount,
                                            OTR_PLUGIN_FLOAT32, r.stream),
                OTR_OK);
      r.need_ready();
      const std::vector<float> got = r.get(sum, kCount);
      for (size_t i = 0; i < kCount; ++i) {
        const size_t at = static_cast<size_t>(r.rank) * kCount + i;
        float ring = value_of((r.rank + 1) % world, at), ranked = value_of(0, at);
        for (int32_t k = 2; k <= world; ++k) ring += value_of((r.rank + k) % world, at);
        for (int32_t k = 1; k < world; ++k) ranked += value_of(k, at);
        ASSERT_EQ(got[i], ring) << i;
        if (r.rank == 0 && ring != ranked) ++other_than_ranked;
      }
    });
  }
  EXPECT_GT(other_than_ranked, 0U);
}

TEST(NcclPlugin, WhatIsBegunBeforeTheOtherIsReadyIsRefused) {
  on_ranks(2, [](NcclRank& r) {
    auto* const all = static_cast<unsigned char*>(r.allocate(20));
    ASSERT_EQ(nccl_table().all_gather(r.collective, all + r.rank * 10, all, 10, r.stream), OTR_OK);
    EXPECT_EQ(nccl_table().all_gather(r.collective, all + r.rank * 10, all, 10, r.stream),
              OTR_E_ARGUMENT);
    EXPECT_EQ(std::string(nccl_table().last_error()),
              "ncclAllGather: invalid usage (5), the mock library's last words");
    r.need_ready();
    ASSERT_EQ(cuda_table().stream_synchronize(r.device, r.stream), OTR_OK);
  });
}

TEST(NcclPlugin, WrongUseIsNamed) {
  on_ranks(1, [](NcclRank& r) {
    void* const data = r.allocate(64);
    otr_plugin_transfer wrong = transfer(1, data, 64);
    const auto text = [] { return std::string(nccl_table().last_error()); };
    EXPECT_EQ(nccl_table().exchange(r.collective, &wrong, 1, nullptr, 0, r.stream), OTR_E_ARGUMENT);
    EXPECT_EQ(text(), "there is no rank 1 to exchange with; there are 1");
    wrong.peer = -1;
    EXPECT_EQ(nccl_table().exchange(r.collective, nullptr, 0, &wrong, 1, r.stream), OTR_E_ARGUMENT);
    EXPECT_EQ(nccl_table().reduce_scatter(r.collective, data, data, 1, OTR_PLUGIN_BLOCK8, r.stream),
              OTR_E_ARGUMENT);
    EXPECT_NE(text().find("format 5 cannot be summed"), std::string::npos) << text();
    // It can be used as before.
    wrong.peer = 0;
    otr_plugin_transfer back = transfer(0, r.allocate(64), 64);
    EXPECT_EQ(nccl_table().exchange(r.collective, &wrong, 1, &back, 1, r.stream), OTR_OK);
    r.need_ready();
    ASSERT_EQ(cuda_table().stream_synchronize(r.device, r.stream), OTR_OK);
  });
  otr_plugin_ranks ranks{};
  ranks.struct_size = sizeof ranks;
  ranks.world = 2;
  otr_plugin_collective* made = nullptr;
  for (const int32_t rank : {-1, 2}) {
    ranks.rank = rank;
    EXPECT_EQ(nccl_table().create(&ranks, &made), OTR_E_ARGUMENT);
    EXPECT_EQ(made, nullptr);
  }
  ranks.rank = 0;
  ranks.device_id = 99;
  EXPECT_EQ(nccl_table().create(&ranks, &made), OTR_E_ARGUMENT);
  EXPECT_NE(std::string(nccl_table().last_error()).find("CUDA device 99"), std::string::npos);
  ranks.device_id = 0;
  EXPECT_EQ(nccl_table().create(&ranks, &made), OTR_E_SYSTEM);  // no id
  expect_nothing_held_by_nccl();
  expect_nothing_held();
}

// A rank that hangs: its peers' streams stand still until they are told to give up.
TEST(NcclPlugin, AnAbortEndsWhatIsUnderWay) {
  mock_nccl().set("stall", 1);
  on_ranks(2, [](NcclRank& r) {
    auto* const all = static_cast<unsigned char*>(r.allocate(20));
    ASSERT_EQ(nccl_table().all_gather(r.collective, all + r.rank * 10, all, 10, r.stream), OTR_OK);
    r.need_ready();
    otr_plugin_event* event = nullptr;
    ASSERT_EQ(cuda_table().event_record(r.device, r.stream, &event), OTR_OK);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    int32_t is_done = 1;
    ASSERT_EQ(cuda_table().event_query(r.device, event, &is_done), OTR_OK);
    EXPECT_EQ(is_done, 0);
    nccl_table().abort(r.collective);
    EXPECT_EQ(cuda_table().event_synchronize(r.device, event), OTR_OK);
    cuda_table().event_destroy(r.device, event);
    EXPECT_EQ(r.ready(), OTR_E_ABORTED);
    EXPECT_EQ(nccl_table().all_gather(r.collective, all, all, 10, r.stream), OTR_E_ABORTED);
    EXPECT_EQ(std::string(nccl_table().last_error()), "this NCCL communicator was aborted");
    nccl_table().abort(r.collective);  // once is enough
  });
  mock_nccl().set("stall", 0);
  expect_nothing_held_by_nccl();
  expect_nothing_held();
}

TEST(NcclPlugin, FailuresInTheBackgroundHaveAStatus) {
  struct Pair {
    int result;
    int32_t status;
  };
  for (const Pair& p : {Pair{1, OTR_E_DEVICE_FAULT}, Pair{2, OTR_E_SYSTEM}, Pair{3, OTR_E_SYSTEM},
                        Pair{6, OTR_E_PEER_DEAD}}) {
    std::barrier both(2);  // each has come without a failure
    on_ranks(2, [&](NcclRank& r) {
      both.arrive_and_wait();
      mock_nccl().set("async_error", p.result);
      EXPECT_EQ(r.ready(), p.status);
      const std::string text = nccl_table().last_error();
      EXPECT_NE(text.find("NCCL, in the background: "), std::string::npos) << text;
      EXPECT_NE(text.find("(" + std::to_string(p.result) + ")"), std::string::npos) << text;
    });
    mock_nccl().set("async_error", 0);
  }
  expect_nothing_held_by_nccl();
}

// A rank that never comes keeps the others from being ready, and they can go.
TEST(NcclPlugin, MeetingWaitsForNobody) {
  const std::vector<unsigned char> id = new_id();
  {
    const NcclRank first(0, 2, id);
    int32_t is_ready = 1;
    EXPECT_EQ(nccl_table().is_ready(first.collective, &is_ready), OTR_OK);
    EXPECT_EQ(is_ready, 0);
  }
  expect_nothing_held_by_nccl();
  expect_nothing_held();
}

TEST(NcclPlugin, MemoryIsRegisteredUntilItIsNot) {
  on_ranks(1, [](NcclRank& r) {
    void* const data = r.allocate(4096);
    void* handle = nullptr;
    EXPECT_EQ(nccl_table().register_memory(r.collective, data, 4096, &handle), OTR_OK);
    EXPECT_EQ(mock_nccl().get("registrations"), 1);
    nccl_table().unregister_memory(r.collective, handle);
    EXPECT_EQ(mock_nccl().get("registrations"), 0);
  });
}

// Whatever call it is, it is told by the call that began it, or by is_ready.
TEST(NcclPlugin, EachCallThatFailsIsTold) {
  int64_t n = 1;
  for (bool failed = true; failed; ++n) {
    ASSERT_LT(n, 40);
    failed = false;
    std::string told;
    mock_nccl().set("fail_with", 3);
    mock_nccl().set("fail_in", static_cast<double>(n));
    try {
      const std::vector<unsigned char> id = new_id();
      NcclRank r(0, 1, id);
      r.need_ready();
      unsigned char* const data = r.put(bytes_for(0, 0, 10));
      void* const to = r.allocate(10);
      const auto need_it = [&](int32_t status) {
        if (status != OTR_OK) throw Refused(status, nccl_table().last_error());
        r.need_ready();
      };
      const otr_plugin_transfer sent = transfer(0, data, 10), received = transfer(0, to, 10);
      need_it(nccl_table().exchange(r.collective, &sent, 1, &received, 1, r.stream));
      need_it(nccl_table().all_gather(r.collective, data, to, 10, r.stream));
      need_it(nccl_table().reduce_scatter(r.collective, data, to, 2, OTR_PLUGIN_FLOAT32, r.stream));
    } catch (const Refused& refused) {
      failed = true;
      told = refused.what();
      EXPECT_EQ(refused.status, OTR_E_SYSTEM) << told;
    }
    const std::string met = mock_nccl().failed();
    mock_nccl().set("fail_in", 0);
    if (failed) {
      EXPECT_NE(told.find(met + ": internal error (3)"), std::string::npos) << told;
    }
    expect_nothing_held_by_nccl();
    expect_nothing_held();
  }
  EXPECT_GT(n, 12);
}

}  // namespace

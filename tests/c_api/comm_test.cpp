// SPDX-License-Identifier: Apache-2.0
// otr_comm: collectives and how groups end.
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "blocking.h"
#include "support.h"

namespace {

using namespace otr_test;

TEST(CommSelf, IsAGroupOfOne) {
  const auto context = make_context();
  const auto comm = make_self(context.get());
  int32_t rank = 9, size = 9;
  EXPECT_OK(otr_comm_rank(comm.get(), &rank));
  EXPECT_OK(otr_comm_size(comm.get(), &size));
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(size, 1);
  EXPECT_OK(otr_comm_barrier(comm.get()));
  double values[3] = {1.5, -2, 1e300};
  EXPECT_OK(otr_comm_all_reduce_sum(comm.get(), values, 3));
  EXPECT_EQ(values[0], 1.5);
  EXPECT_EQ(values[1], -2);
  EXPECT_EQ(values[2], 1e300);
  const char mine[3] = {1, 2, 3};
  char all[3] = {};
  EXPECT_OK(otr_comm_all_gather(comm.get(), mine, 3, all));
  EXPECT_EQ(all[2], 3);
}

TEST(CommThreads, HasRanksInOrder) {
  run_ranks(3, [](int32_t rank, otr_comm* comm) {
    int32_t number = -1;
    EXPECT_OK(otr_comm_rank(comm, &number));
    EXPECT_EQ(number, rank);
    EXPECT_OK(otr_comm_size(comm, &number));
    EXPECT_EQ(number, 3);
  });
}

TEST(CommThreads, BarrierWaitsForEveryRank) {
  std::atomic<int> came{0};
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30 * rank));
    ++came;
    EXPECT_OK(otr_comm_barrier(comm));
    EXPECT_EQ(came, 3);
  });
}

TEST(CommThreads, CollectivesMoveAnySize) {
  run_ranks(3, [](int32_t rank, otr_comm* comm) {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{3000001}}) {
      for (int32_t root = 0; root < 3; ++root) {
        std::vector<unsigned char> data(bytes, static_cast<unsigned char>(rank));
        EXPECT_OK(otr_comm_broadcast(comm, data.data(), bytes, root));
        EXPECT_EQ(data, std::vector<unsigned char>(bytes, static_cast<unsigned char>(root)));
      }
      const std::vector<unsigned char> mine(bytes, static_cast<unsigned char>(7 * rank + 1));
      std::vector<unsigned char> all(3 * bytes);
      EXPECT_OK(otr_comm_all_gather(comm, mine.data(), bytes, all.data()));
      for (size_t i = 0; i < all.size(); i += 997) {
        EXPECT_EQ(all[i], 7 * (i / bytes) + 1);
      }
    }
  });
}

TEST(CommThreads, SumsInRankOrder) {
  // (1e16 + 1) + 1 = 1e16, but 1 + 1 + 1e16 = 1e16 + 2: the order shows.
  const double given[3] = {1e16, 1, 1};
  const double expected = (1e16 + 1) + 1;
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    double values[2] = {given[rank], given[2 - rank]};
    EXPECT_OK(otr_comm_all_reduce_sum(comm, values, 2));
    EXPECT_EQ(values[0], expected);
    EXPECT_EQ(values[1], 1e16 + 2);
    for (const size_t count : {size_t{42}, size_t{43}, size_t{1000}}) {  // 126 values of all, …
      std::vector<double> many(count);
      for (size_t i = 0; i < count; ++i) many[i] = given[rank] * static_cast<double>(i + 1);
      EXPECT_OK(otr_comm_all_reduce_sum(comm, many.data(), count));
      for (size_t i = 0; i < count; ++i) {
        const auto times = static_cast<double>(i + 1);
        EXPECT_EQ(many[i], (1e16 * times + times) + times) << i << " of " << count;
      }
    }
  });
}

TEST(CommThreads, RootOutOfRange) {
  run_ranks(2, [](int32_t, otr_comm* comm) {
    char byte = 0;
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_broadcast(comm, &byte, 1, 2), "root", "2");
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_broadcast(comm, &byte, 1, -1), "root", "-1");
    EXPECT_OK(otr_comm_barrier(comm));  // refused before anything was sent
  });
}

// A count that no memory holds is refused by a name, and at once.
TEST(CommThreads, ImpossibleSizes) {
  const auto context = make_context();
  const auto comm = make_self(context.get());
  double value = 0;
  const int32_t status = otr_comm_all_reduce_sum(comm.get(), &value, SIZE_MAX / 4);
  EXPECT_TRUE(status == OTR_E_ARGUMENT || status == OTR_E_OUT_OF_MEMORY)
      << otr_status_name(status) << ": " << otr_last_error_message();
  otr_comm* comms[2] = {};
  ASSERT_OK(otr_comm_create_threads(context.get(), 2, nullptr, comms));
  char byte = 0;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_all_gather(comms[0], &byte, SIZE_MAX / 2 + 1, &byte),
               "bytes");
  otr_comm_destroy(comms[0]);
  otr_comm_destroy(comms[1]);
}

TEST(CommThreads, DifferentCallsNameBoth) {
  run_ranks(2, [](int32_t rank, otr_comm* comm) {
    double value = 1;
    const int32_t status =
        rank == 0 ? otr_comm_barrier(comm) : otr_comm_all_reduce_sum(comm, &value, 1);
    EXPECT_FAILS(OTR_E_MISMATCH, status, "otr_comm_barrier", "otr_comm_all_reduce_sum", "rank 0",
                 "rank 1");
  });
}

TEST(CommThreads, DifferentSizesNameBoth) {
  run_ranks(2, [](int32_t rank, otr_comm* comm) {
    char data[8] = {};
    EXPECT_FAILS(OTR_E_MISMATCH, otr_comm_broadcast(comm, data, rank == 0 ? 5 : 7, 0), "5", "7");
  });
}

TEST(CommThreads, AbortEndsPendingAndLaterCalls) {
  run_ranks(3, [](int32_t rank, otr_comm* comm) {
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_OK(otr_comm_abort(comm, "the test's reason"));
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_FAILS(OTR_E_ABORTED, otr_comm_barrier(comm), "rank 1", "the test's reason");
    }
  });
}

TEST(CommThreads, AbortNeedsNoReason) {
  run_ranks(2, [](int32_t rank, otr_comm* comm) {
    if (rank == 0) {
      EXPECT_OK(otr_comm_abort(comm, nullptr));
    }
    EXPECT_FAILS(OTR_E_ABORTED, otr_comm_barrier(comm), "rank 0");
  });
}

TEST(CommThreads, AbortComesFromAnyThread) {
  std::atomic<bool> ended{false};
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    if (rank == 1) {  // alive, and never comes to the barrier
      while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    std::thread other([comm] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_OK(otr_comm_abort(comm, "from beside"));
    });
    EXPECT_FAILS(OTR_E_ABORTED, otr_comm_barrier(comm), "rank 0", "from beside");
    other.join();
    ended = true;
  });
}

TEST(CommThreads, ASilentRankTimesOutOnTheOthers) {
  run_ranks(
      2,
      [](int32_t rank, otr_comm* comm) {
        if (rank == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(900));
          EXPECT_FAILS(OTR_E_TIMEOUT, otr_comm_barrier(comm), "rank 1")
              << "all name the same culprit";
          return;
        }
        const auto begin = Clock::now();
        EXPECT_FAILS(OTR_E_TIMEOUT, otr_comm_barrier(comm), "rank 1", "timeout");
        EXPECT_GE(seconds_since(begin), 0.25);
        EXPECT_LT(seconds_since(begin), 0.85);
      },
      0.3);
}

TEST(CommThreads, ADestroyedRankIsReportedWithinASecond) {
  run_ranks(3, [](int32_t rank, otr_comm* comm) {
    if (rank == 2) return;  // its handle is destroyed
    const auto begin = Clock::now();
    EXPECT_FAILS(OTR_E_PEER_DEAD, otr_comm_barrier(comm), "rank 2");
    EXPECT_LT(seconds_since(begin), 1);
  });
}

TEST(CommThreads, AnyFiniteTimeoutIsLegal) {
  run_ranks(
      2,
      [](int32_t rank, otr_comm* comm) {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        EXPECT_OK(otr_comm_barrier(comm));
      },
      std::numeric_limits<double>::max());
}

}  // namespace

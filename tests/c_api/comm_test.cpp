// SPDX-License-Identifier: Apache-2.0
// otr_comm: making groups, their collectives, their ends.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "support.h"

namespace {

using namespace otr_test;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

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

TEST(CommCreate, RefusesNumbersOutOfRange) {
  const auto context = make_context();
  otr_comm* comms[2] = {};
  for (const int32_t world : {0, -3}) {
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_threads(context.get(), world, nullptr, comms), "world_size",
                 std::to_string(world));
  }
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  for (const double timeout : {0.0, -1.0, std::nan(""), static_cast<double>(HUGE_VALF)}) {
    options.timeout = timeout;
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_threads(context.get(), 2, &options, comms), "timeout");
    EXPECT_EQ(comms[0], nullptr);
    EXPECT_EQ(comms[1], nullptr);
  }
}

TEST(CommCreate, ShmNeedsRankWorldAndJob) {
  const auto context = make_context();
  otr_comm* comm = nullptr;
  otr_comm_options options;
  const auto reset = [&] {
    ASSERT_OK(otr_comm_options_init(&options, sizeof options));
    options.world_size = 1;
    options.job = "c_api_arguments";
  };
  reset();
  options.job = nullptr;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm), "job");
  options.job = "";
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm), "job");
  reset();
  options.rank = 1;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm), "rank = 1");
  options.rank = -1;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm), "rank = -1");
  reset();
  options.world_size = 0;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_shm(context.get(), &options, &comm), "world_size = 0");
  EXPECT_EQ(comm, nullptr);
  reset();
  EXPECT_OK(otr_comm_create_shm(context.get(), &options, &comm));
  EXPECT_OK(otr_comm_barrier(comm));
  otr_comm_destroy(comm);
}

// Rank 0 knows who came; the others know whether rank 0 did.
TEST(CommCreate, ShmNamesTheRanksThatDidNotCome) {
  const auto context = make_context();
  for (const int32_t rank : {0, 1}) {
    otr_comm_options options;
    ASSERT_OK(otr_comm_options_init(&options, sizeof options));
    options.world_size = 3;
    options.rank = rank;
    options.job = "c_api_alone";
    options.timeout = 0.3;
    otr_comm* comm = nullptr;
    const auto begin = Clock::now();
    const int32_t status = otr_comm_create_shm(context.get(), &options, &comm);
    if (rank == 0) {
      EXPECT_FAILS(OTR_E_TIMEOUT, status, "1", "2");
    } else {
      EXPECT_FAILS(OTR_E_TIMEOUT, status, "rank 0");
    }
    EXPECT_EQ(comm, nullptr);
    EXPECT_GE(seconds_since(begin), 0.25);
    EXPECT_LT(seconds_since(begin), 10);
  }
}

// The launcher's variables, put back afterwards.
class Environment : public testing::Test {
 protected:
  void set(const char* name, const char* value) {
    const char* old = getenv(name);
    before_.emplace_back(name, old == nullptr ? "" : old, old != nullptr);
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  void SetUp() override {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                             "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) {
      set(name, nullptr);
    }
  }
  void TearDown() override {
    for (auto b = before_.rbegin(); b != before_.rend(); ++b) {
      b->existed ? setenv(b->name, b->value.c_str(), 1) : unsetenv(b->name);
    }
  }
  struct Before {
    const char* name;
    std::string value;
    bool existed;
  };
  std::vector<Before> before_;
  Owned<otr_context> context_ = make_context();
};

TEST_F(Environment, WithoutVariablesIsAGroupOfOne) {
  otr_comm* comm = nullptr;
  ASSERT_OK(otr_comm_from_env(context_.get(), nullptr, &comm));
  int32_t size = 0;
  EXPECT_OK(otr_comm_size(comm, &size));
  EXPECT_EQ(size, 1);
  otr_comm_destroy(comm);
}

TEST_F(Environment, OfWorldSizeOneIsAGroupOfOne) {
  set("RANK", "0");
  set("WORLD_SIZE", "1");
  otr_comm* comm = nullptr;
  ASSERT_OK(otr_comm_from_env(context_.get(), nullptr, &comm));
  otr_comm_destroy(comm);
}

TEST_F(Environment, ThatContradictsItselfIsListed) {
  set("RANK", "7");
  set("WORLD_SIZE", "2");
  set("LOCAL_WORLD_SIZE", "2");
  otr_comm* comm = nullptr;
  EXPECT_FAILS(OTR_E_CONFIG, otr_comm_from_env(context_.get(), nullptr, &comm), "RANK", "7", "WORLD_SIZE", "2");
  EXPECT_EQ(comm, nullptr);
  set("RANK", "seven");
  EXPECT_FAILS(OTR_E_CONFIG, otr_comm_from_env(context_.get(), nullptr, &comm), "RANK", "seven");
}

TEST_F(Environment, OfSeveralHostsIsNotSupportedYet) {
  set("RANK", "0");
  set("WORLD_SIZE", "4");
  set("LOCAL_RANK", "0");
  set("LOCAL_WORLD_SIZE", "2");
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", "29500");
  otr_comm* comm = nullptr;
  EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_comm_from_env(context_.get(), nullptr, &comm), "4", "2");
  EXPECT_EQ(comm, nullptr);
}

TEST_F(Environment, OfOneHostIsSharedMemory) {
  set("WORLD_SIZE", "2");
  set("LOCAL_WORLD_SIZE", "2");
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", "29517");
  set("RANK", "1");
  set("LOCAL_RANK", "1");
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  options.timeout = 0.3;
  otr_comm* comm = nullptr;
  EXPECT_FAILS(OTR_E_TIMEOUT, otr_comm_from_env(context_.get(), &options, &comm), "0");
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
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_all_gather(comms[0], &byte, SIZE_MAX / 2 + 1, &byte), "bytes");
  otr_comm_destroy(comms[0]);
  otr_comm_destroy(comms[1]);
}

TEST(CommThreads, DifferentCallsNameBoth) {
  run_ranks(2, [](int32_t rank, otr_comm* comm) {
    double value = 1;
    const int32_t status = rank == 0 ? otr_comm_barrier(comm) : otr_comm_all_reduce_sum(comm, &value, 1);
    EXPECT_FAILS(OTR_E_MISMATCH, status, "otr_comm_barrier", "otr_comm_all_reduce_sum", "rank 0", "rank 1");
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
          EXPECT_FAILS(OTR_E_TIMEOUT, otr_comm_barrier(comm), "rank 1") << "all name the same culprit";
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

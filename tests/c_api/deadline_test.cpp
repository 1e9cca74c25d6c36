// SPDX-License-Identifier: Apache-2.0
// Every call that waits for other ranks obeys the communicator's timeout and names who was absent.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "blocking.h"

namespace {

using namespace otr_test;

constexpr double kTimeout = 0.5;

class Deadline : public testing::TestWithParam<Call> {
 protected:
  // As rank 0: the other one does not come.
  static void expect_timeout(const Scene& scene) {
    const auto begin = Clock::now();
    EXPECT_FAILS(OTR_E_TIMEOUT, GetParam().run(scene), "rank 1", "0.5 s");
    EXPECT_GT(seconds_since(begin), 0.3);
    EXPECT_LT(seconds_since(begin), 2);
  }
};
INSTANTIATE_TEST_SUITE_P(Calls, Deadline, testing::ValuesIn(blocking_calls()), call_name);

TEST_P(Deadline, AmongThreads) {
  for (const Kind& kind : kinds_for(GetParam())) {
    SCOPED_TRACE(kind.name);
    std::atomic<bool> over{false};
    run_ranks(
        2,
        [&](int32_t rank, otr_comm* comm) {
          const Scene scene = scene_for(GetParam(), kind, rank, comm);
          if (rank == 0) {
            expect_timeout(scene);
            over = true;
          }
          wait_for(over);
        },
        kTimeout);
  }
}

// In processes of their own, which tell by their exit codes.
TEST_P(Deadline, AmongProcesses) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto& over = *new (page) std::atomic<bool>(false);
  const std::string job = "c_api_deadline_" + std::to_string(getpid());
  std::array<pid_t, 2> ranks{};
  fflush(stdout);
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks[static_cast<size_t>(rank)] = fork();
    if (ranks[static_cast<size_t>(rank)] != 0) continue;
    {
      const auto context = make_context(1);
      // To find each other, which a busy machine may make slow.
      const Owned<otr_comm> first = make_shm(context.get(), job, rank, 2, 20);
      const Owned<otr_comm> comm = make_shm(context.get(), job + " hasty", rank, 2, kTimeout);
      const Scene scene = scene_for(GetParam(), kKinds[3], rank, comm.get());
      if (rank == 0) {
        expect_timeout(scene);
        over = true;
      }
      wait_for(over);
    }
    fflush(stdout);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  for (const pid_t rank : ranks) {
    int status = -1;
    EXPECT_EQ(waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, 0);
  }
  munmap(page, 4096);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Processes that die, stop or never come; every signal goes to a process that the test itself
// started.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/region.h"
#include "tests/comm/ranks.h"
#include "tests/core/shared_memory.h"

namespace outrigger::comm::test {
namespace {

size_t entries_of(const char* folder) {
  size_t n = 0;
  DIR* dir = opendir(folder);
  while (dir != nullptr && readdir(dir) != nullptr) n++;
  if (dir != nullptr) closedir(dir);
  return n;
}

// ---- Death --------------------------------------------------------------------------------------

struct Death {
  const char* where;
  int32_t world, victim;
  std::function<void(Communicator&, int32_t victim)> body;
  LivenessSource liveness = LivenessSource::best;
};
void PrintTo(const Death& death, std::ostream* out) { *out << death.where; }

void work_on(Communicator& c) {
  for (int32_t i = 0; i < 1000000; i++) c.barrier("work");
}

void before_first(Communicator& c, int32_t victim) {
  if (c.rank() == victim) die();
  work_on(c);
}

// While the others sleep in a barrier.
void others_asleep(Communicator& c, int32_t victim) {
  c.barrier("together");
  if (c.rank() == victim) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    die();
  }
  work_on(c);
}

// At any instruction of a busy loop of collectives.
void amid_barriers(Communicator& c, int32_t victim) {
  if (c.rank() == victim) die_in(std::chrono::milliseconds(30));
  work_on(c);
}

void amid_large_gather(Communicator& c, int32_t victim) {
  if (c.rank() == victim) die_in(std::chrono::milliseconds(50));
  std::vector<std::byte> mine(20 << 20), all(mine.size() * static_cast<size_t>(c.size()));
  for (int i = 0; i < 1000; i++) c.all_gather(mine, all, "large");
}

void inside_exchange(Communicator& c, int32_t victim) {
  const auto window = c.create_window(WindowKind::per_rank, 1 << 20, "bucket");
  static_cast<void>(c.exchange(*window, 0, 1000, "gradients"));
  if (c.rank() == victim) die();
  c.wait_drained(c.end_exchange(), "reuse");
}

void amid_windows(Communicator& c, int32_t victim) {
  if (c.rank() == victim) die_in(std::chrono::milliseconds(40));
  for (int i = 0; i < 100000; i++)
    static_cast<void>(c.create_window(WindowKind::per_rank, 8 << 20, "window"));
}

void amid_duplicates(Communicator& c, int32_t victim) {
  if (c.rank() == victim) die_in(std::chrono::milliseconds(40));
  for (int i = 0; i < 100000; i++) static_cast<void>(c.duplicate("copy"));
}

// The survivors wait on a duplicate, in another thread.
void seen_on_duplicates(Communicator& c, int32_t victim) {
  const auto other = c.duplicate("other");
  std::string first;
  std::thread background([&] {
    try {
      work_on(*other);
    } catch (const Error& error) {
      first = error.what();
    }
  });
  if (c.rank() == victim) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    die();
  }
  std::string second;
  try {
    work_on(c);
  } catch (const Error& error) {
    second = error.what();
  }
  background.join();
  require(first == second, first + " / " + second);
  c.check();
}

// No handle is destroyed, no signal is sent: the process just exits.
void exits(Communicator& c, int32_t victim) {
  c.barrier("together");
  if (c.rank() == victim) {
    board().moment = now();
    _exit(0);
  }
  work_on(c);
}

class ShmDeath : public testing::TestWithParam<Death> {};

TEST_P(ShmDeath, IsReportedByAllSurvivorsWithinASecond) {
  const Death& death = GetParam();
  const auto outcomes = run({Provider::shm, death.world, 30, death.liveness},
                            [&](Communicator& c) { death.body(c, death.victim); });
  std::string text;
  for (int32_t r = 0; r < death.world; r++) {
    const Outcome& outcome = outcomes[static_cast<size_t>(r)];
    if (r == death.victim) {
      EXPECT_EQ(outcome.status, kKilled) << outcome.text;
      continue;
    }
    EXPECT_EQ(outcome.status, OTR_E_PEER_DEAD) << "rank " << r << ": " << outcome.text;
    if (text.empty()) text = outcome.text;
    EXPECT_EQ(outcome.text, text);
    expect_says(outcome.text, {outrigger::format_text("rank {} (process ", death.victim),
                               " ended while ", "operation "});
    const double took = outcome.ended_at - board().moment;
    EXPECT_LT(took, kSoon) << "rank " << r;
    RecordProperty(outrigger::format_text("rank{}_ms", r),
                   outrigger::format_text("{:.0f}", took * 1000));
    if (std::getenv("OTR_TEST_TIMES") != nullptr) {
      std::printf("%s: rank %d knew after %.1f ms\n", death.where, r, took * 1000);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    At, ShmDeath,
    testing::Values(Death{"before_the_first_collective", 3, 1, before_first},
                    Death{"while_others_sleep", 4, 2, others_asleep},
                    Death{"while_others_sleep_rank_0", 4, 0, others_asleep},
                    Death{"amid_barriers", 3, 2, amid_barriers},
                    Death{"amid_barriers_rank_0", 3, 0, amid_barriers},
                    Death{"amid_large_gather", 2, 1, amid_large_gather},
                    Death{"inside_a_fold", 3, 1, inside_exchange},
                    Death{"inside_a_fold_rank_0", 3, 0, inside_exchange},
                    Death{"amid_windows", 3, 2, amid_windows},
                    Death{"amid_windows_rank_0", 3, 0, amid_windows},
                    Death{"amid_duplicates", 3, 1, amid_duplicates},
                    Death{"amid_duplicates_rank_0", 3, 0, amid_duplicates},
                    Death{"seen_on_duplicates", 3, 1, seen_on_duplicates},
                    Death{"by_plain_exit", 3, 1, exits},
                    Death{"by_locks", 3, 1, others_asleep, LivenessSource::locks},
                    Death{"by_locks_rank_0", 3, 0, others_asleep, LivenessSource::locks}),
    [](const auto& info) { return std::string(info.param.where); });

TEST(ShmFault, ManyDeathsAtRandomMoments) {
  for (int i = 0; i < 25; i++) {
    const auto outcomes = run({Provider::shm, 2}, [&](Communicator& c) {
      std::thread killer;
      if (c.rank() == i % 2) {
        killer = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(i * 700));
          die();
        });
      }
      const auto window = c.create_window(WindowKind::per_rank, 100000, "w");
      for (;;) {
        static_cast<void>(c.exchange(*window, 0, 50000, "r"));
        c.wait_drained(c.end_exchange(), "d");
        c.all_gather_window(*window, 0, 50000, "g");
        static_cast<void>(c.create_window(WindowKind::common, 100000, "c"));
      }
    });
    const Outcome& survivor = outcomes[static_cast<size_t>(1 - i % 2)];
    EXPECT_EQ(survivor.status, OTR_E_PEER_DEAD) << survivor.text;
    expect_says(survivor.text, {outrigger::format_text("rank {} ", i % 2)});
    EXPECT_LT(survivor.ended_at - board().moment, 1.0);
  }
}

// ---- Silence ------------------------------------------------------------------------------------

TEST(ShmFault, AStoppedRankIsATimeoutThatNamesIt) {
  const auto outcomes = run({Provider::shm, 3, 1.0}, [](Communicator& c) {
    board().numbers[static_cast<size_t>(c.rank())] = getpid();
    c.barrier("together");
    if (c.rank() == 2) {
      raise(SIGSTOP);  // rank 0 lets it go on
      c.barrier("late");
    }
    const double start = now();
    try {
      c.barrier("without rank 2");
    } catch (const Error&) {
      if (c.rank() == 0) kill(static_cast<pid_t>(board().numbers[2].load()), SIGCONT);
      const double took = now() - start;
      require(took > 0.95 && took < 1.5, outrigger::format_text("gave up after {} s", took));
      throw;
    }
  });
  for (const auto& outcome : outcomes) {  // the stopped rank hears the same when it is back
    EXPECT_EQ(outcome.status, OTR_E_TIMEOUT) << outcome.text;
    expect_says(outcome.text, {"1 of 3 ranks", "rank 2 last began", "without rank 2"});
  }
}

// A storm of signals neither ends a wait nor postpones its end.
TEST(ShmFault, SignalsDoNotDisturbWaits) {
  const auto outcomes = run({Provider::shm, 2, 1.0}, [](Communicator& c) {
    struct sigaction action{};
    action.sa_handler = [](int) {};  // no SA_RESTART
    sigaction(SIGALRM, &action, nullptr);
    const itimerval every{{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &every, nullptr);
    for (int i = 0; i < 50; i++)
      static_cast<void>(c.create_window(WindowKind::per_rank, 1 << 20, "w"));
    const double start = now();
    if (c.rank() == 1) {
      while (now() - start < 1.6) std::this_thread::yield();
    }
    try {
      c.barrier("alone");
    } catch (const Error&) {
      require(c.rank() == 1 || now() - start < 1.4, "late");
      throw;
    }
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.status, OTR_E_TIMEOUT) << outcome.text;
}

// ---- Memory -------------------------------------------------------------------------------------

// Half the ranks cannot map what the others can: all refuse it, and go on.
TEST(ShmFault, OneRanksLimitIsEveryRanksRefusal) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space that this test takes away";
#endif
  run_all_well({Provider::shm, 3}, [](Communicator& c) {
    if (c.rank() == 1) {
      std::ifstream statm("/proc/self/statm");
      size_t pages = 0;
      statm >> pages;
      rlimit limit{};
      getrlimit(RLIMIT_AS, &limit);
      limit.rlim_cur = pages * page_size() + (64 << 20);
      setrlimit(RLIMIT_AS, &limit);
    }
    try {
      static_cast<void>(c.create_window(WindowKind::per_rank, 100 << 20, "too much for rank 1"));
      require(false, "was granted");
    } catch (const Error& error) {
      require(error.status() == OTR_E_OUT_OF_MEMORY, error.what());
      require(std::string_view(error.what()).find("on rank 1") != std::string_view::npos,
              error.what());
    }
    static_cast<void>(c.create_window(WindowKind::per_rank, 1 << 20, "modest"));
  });
}

TEST(ShmFault, FileSizeLimitIsARefusalNotASignal) {
  run_all_well({Provider::shm, 2}, [](Communicator& c) {
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 16 << 20;
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      static_cast<void>(c.create_window(WindowKind::per_rank, 32 << 20, "large file"));
      require(false, "was granted");
    } catch (const Error& error) {
      require(error.status() == OTR_E_OUT_OF_MEMORY, error.what());
    }
    static_cast<void>(c.create_window(WindowKind::per_rank, 1 << 20, "modest"));
  });
}

TEST(ShmFault, NoDescriptorsLeftIsARefusal) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UBSan's look at a virtual table, built with this one, makes a pipe";
#endif
  run_all_well({Provider::shm, 2}, [](Communicator& c) {
    std::vector<int> taken;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit few{64, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    if (c.rank() == 1) {
      for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.push_back(fd);
    }
    try {
      static_cast<void>(c.create_window(WindowKind::per_rank, 1 << 20, "w"));
      require(false, "was granted");
    } catch (const Error& error) {
      require(error.status() == OTR_E_OUT_OF_MEMORY, error.what());
    }
    for (const int fd : taken) close(fd);
    static_cast<void>(c.create_window(WindowKind::per_rank, 1 << 20, "modest"));
  });
}

TEST(ShmFault, SharedMemoryCannotBeCutAway) {
  const auto region = Region::make_shared(1 << 20);
  EXPECT_EQ(ftruncate(region->fd(), 0), -1);
  EXPECT_EQ(ftruncate(region->fd(), 2 << 20), -1);
  EXPECT_NE(fcntl(region->fd(), F_GETFD) & FD_CLOEXEC, 0);
  // A file that could be cut is not taken from a peer.
  UniqueFd loose(memfd_create("loose", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(loose.get(), 4096), 0);
  EXPECT_THROW(static_cast<void>(Region::attach(std::move(loose), 4096)), Error);
}

// ---- What is left behind ------------------------------------------------------------------------

TEST(ShmFault, LeavesNothingBehind) {
  const auto files = outrigger::test::named_shared_memory();
  const size_t own = entries_of("/proc/self/fd");
  run_all_well({Provider::shm, 3}, [](Communicator& c) {
    const size_t fds = entries_of("/proc/self/fd");
    const auto maps = [] {
      std::ifstream in("/proc/self/maps");
      size_t n = 0;
      for (std::string line; std::getline(in, line);)
        n += line.find("memfd:outrigger") != std::string::npos;
      return n;
    };
    const size_t mapped = maps();
    for (int i = 0; i < 20; i++) {
      const auto other = c.duplicate("copy");
      const auto a = other->create_window(WindowKind::per_rank, 3 << 20, "a");
      const auto b = c.create_window(WindowKind::common, 5000, "b");
      require(maps() > mapped, "is mapped");
    }
    require(entries_of("/proc/self/fd") == fds, "descriptors grew");
    require(maps() == mapped, "mappings grew");
    c.barrier("end");
  });
  const auto outcomes = run({Provider::shm, 3}, [](Communicator& c) {
    const auto window = c.create_window(WindowKind::per_rank, 3 << 20, "a");
    if (c.rank() != 0) die();
    work_on(c);
  });
  EXPECT_EQ(outcomes[0].status, OTR_E_PEER_DEAD);
  EXPECT_EQ(outrigger::test::named_shared_memory(), files);
  EXPECT_EQ(entries_of("/proc/self/fd"), own);
}

TEST(ShmFault, DescriptorsAreNotInheritedByPrograms) {
  const Ranks group{Provider::shm, 2, 30, LivenessSource::best,
                    outrigger::format_text("cloexec {}", getpid())};
  const auto outcomes = run_processes(2, [&](int32_t rank) {
    const auto open_fds = [] {
      std::set<int> fds;
      for (int fd = 0; fd < 500; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) fds.insert(fd);
      }
      return fds;
    };
    const auto before = open_fds();
    const auto comm = attach(group, rank);
    size_t ours = 0;
    for (const int fd : open_fds()) {
      if (before.contains(fd)) continue;
      ours++;
      require((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0,
              outrigger::format_text("descriptor {} would be inherited", fd));
    }
    require(ours > 0, "there are descriptors to look at");
    comm->barrier("end");
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.status, OTR_OK) << outcome.text;
}

TEST(ShmFault, AForkedChildIsRefusedAndDisturbsNobody) {
  run_all_well({Provider::shm, 2}, [](Communicator& c) {
    const auto window = c.create_window(WindowKind::per_rank, 1 << 20, "w");
    c.barrier("before");
    const pid_t child = fork();
    if (child == 0) {
      int refused = 0;
      try {
        c.barrier("in the child");
      } catch (const Error& error) {
        refused += error.status() == OTR_E_STATE;
      }
      try {
        c.check();
      } catch (const Error& error) {
        refused += error.status() == OTR_E_STATE;
      }
      c.abort("from the child");
      refused += !c.is_drained(0);
      c.~Communicator();  // as a child that exits normally would
      const_cast<std::shared_ptr<Window>&>(window).reset();
      _exit(refused);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 3,
            outrigger::format_text("child ended with {:x}", status));
    c.barrier("after");
  });
}

}  // namespace
}  // namespace outrigger::comm::test

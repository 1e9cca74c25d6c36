// SPDX-License-Identifier: Apache-2.0
// The process ends, forks or idles while everything of the library is alive in it.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "../core/shared_memory.h"
#include "blocking.h"

namespace {

using namespace otr_test;

// What the test binary says at exit is of no interest here.
[[noreturn]] void leave(int code) {
  fflush(stdout);
  std::exit(testing::Test::HasFailure() ? 99 : code);
}

// Alive until the process ends, and not a leak.
template <typename T>
T* keep(T* object) {
  static auto* const kept = new std::vector<void*>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  kept->push_back(object);
  return object;
}

// The exit code, or −1 if the process was killed or had to be.
int exit_code_of(pid_t process, double within) {
  const auto begin = Clock::now();
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (seconds_since(begin) > within) {
      kill(process, SIGKILL);
      waitpid(process, &status, 0);
      ADD_FAILURE() << "process " << process << " did not end within " << within << " s";
      return -1;
    }
    pause(1);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

template <typename Body>
pid_t in_child(const Body& body) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(98);  // a body leaves by itself
  }
  return child;
}

otr_step_report begun_report(const Engine& engine) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_OK(otr_engine_report(engine.get(), -1, &report));
  return report;
}

otr_step_report begun(const Engine& engine) {
  EXPECT_OK(otr_engine_step_begin(engine.get()));
  return begun_report(engine);
}

// An engine with a step made, and threads of all kinds; nobody destroys it.
otr_engine* live_engine(otr_comm* comm, const Kind& kind, bool in_a_pass) {
  Engine made(comm, config_of(kind));
  made.add("w", {kElements}, Values(kElements, 1));
  made.commit();
  made.pass({{0, Values(kElements, 1)}});
  EXPECT_EQ(begun(made).outcome, OTR_STEP_APPLIED);
  if (in_a_pass) keep(made.begin().release());
  return keep(made.release());
}

TEST(Exit, WithAnEngineOfOnesOwn) {
  for (const Kind& kind : {kKinds[0], kKinds[4]}) {
    const pid_t child = in_child([&] {
      auto context = make_context(2);
      auto comm = make_self(context.get());
      live_engine(comm.get(), kind, true);
      keep(context.release());
      keep(comm.release());
      leave(7);
    });
    EXPECT_EQ(exit_code_of(child, 5), 7);
  }
}

// The other rank is a thread that waits inside of the library, in one call or beside the host.
TEST(Exit, WhileAThreadWaits) {
  for (const bool pending : {false, true}) {
    const pid_t child = in_child([&] {
      const auto context = make_context(2);
      std::vector<otr_comm*> comms(2);
      EXPECT_OK(otr_comm_create_threads(context.get(), 2, nullptr, comms.data()));
      std::atomic<bool> ready{false};
      std::thread other([&] {
        live_engine(comms[1], kKinds[3], true);
        ready = true;
        static_cast<void>(otr_comm_barrier(comms[1]));
      });
      Engine engine(comms[0], config_of(kKinds[3]));
      engine.add("w", {kElements}, Values(kElements, 1));
      engine.commit();
      engine.pass({});
      engine.step();
      if (pending) {
        engine.pass({});
        EXPECT_OK(otr_engine_step_begin(engine.get()));
      }
      wait_for(ready);
      pause(50);
      leave(7);
    });
    EXPECT_EQ(exit_code_of(child, 5), 7);
  }
}

TEST(Exit, OfProcessesThatShareMemory) {
  const auto files = outrigger::test::named_shared_memory();
  const std::string job = "c_api_exit_" + std::to_string(getpid());
  std::array<pid_t, 2> ranks{};
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks[static_cast<size_t>(rank)] = in_child([&] {
      const auto context = make_context(1);
      otr_comm* comm = make_shm(context.get(), job, rank, 2).release();
      live_engine(keep(comm), kKinds[4], true);
      if (rank == 1) {  // learns of the other's end, and ends as it likes
        EXPECT_FAILS(OTR_E_PEER_DEAD, otr_comm_barrier(comm), "rank 0");
      }
      leave(7 + rank);
    });
  }
  for (int32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(exit_code_of(ranks[static_cast<size_t>(rank)], 10), 7 + rank);
  }
  EXPECT_EQ(outrigger::test::named_shared_memory(), files);
}

// A host forks while another of its threads is inside of the library.
TEST(Fork, WhileAThreadWaits) {
  const auto context = make_context(2);
  std::vector<otr_comm*> comms(2);
  ASSERT_OK(otr_comm_create_threads(context.get(), 2, nullptr, comms.data()));
  std::atomic<bool> engine_made{false};
  otr_engine* engine = nullptr;
  std::thread other([&] {
    engine = live_engine(comms[1], kKinds[4], false);
    engine_made = true;
    EXPECT_OK(otr_comm_barrier(comms[1]));
  });
  otr_engine* mine = live_engine(comms[0], kKinds[4], false);
  wait_for(engine_made);
  pause(50);
  const pid_t child = in_child([&] {
    otr_step_report report = OTR_STEP_REPORT_INIT;
    EXPECT_FAILS(OTR_E_STATE, otr_engine_step(mine, nullptr), "forked child");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_step_begin(mine), "forked child");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_report(mine, 0, &report), "forked child");
    EXPECT_FAILS(OTR_E_STATE, otr_comm_barrier(comms[0]), "forked child");
    otr_engine_destroy(mine);
    otr_engine_destroy(engine);
#if !defined(__SANITIZE_THREAD__)      // which starts no thread after such a fork
    const auto own = make_context(2);  // and works with its own
    const auto self = make_self(own.get());
    otr_engine_destroy(live_engine(self.get(), kKinds[4], false));
#endif
    leave(7);
  });
  EXPECT_EQ(exit_code_of(child, 5), 7);
  EXPECT_OK(otr_comm_barrier(comms[0])) << "nothing of it shows in the parent";
  other.join();
  otr_engine_destroy(mine);
  otr_engine_destroy(engine);
  for (otr_comm* comm : comms) otr_comm_destroy(comm);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The least of a few: a page of the kernel's accounting is not what is tested.
double cpu_share_while_idle() {
  constexpr int kMilliseconds = 200;
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double before = cpu_seconds();
    pause(kMilliseconds);
    least = std::min(least, (cpu_seconds() - before) * 1000 / kMilliseconds);
  }
  return least;
}

// Workers, the reducer and the thread of pending steps cost the host's computation nothing.
TEST(Idle, NoThreadUsesTheProcessor) {
  constexpr double kShare = 0.02;
  for (const Kind& kind : {kKinds[0], kKinds[3]}) {
    SCOPED_TRACE(kind.name);
    Solo solo(config_of(kind), 8);
    solo.engine.add("w", {1 << 20}, Values(1 << 20, 1));
    solo.engine.commit();
    EXPECT_LT(cpu_share_while_idle(), kShare) << "after commit";
    const auto pass = solo.engine.begin();
    Engine::add(pass, 0, {1 << 20}, Values(1 << 20, 1));
    EXPECT_LT(cpu_share_while_idle(), kShare) << "inside of a pass";
    Engine::end(pass);
    EXPECT_LT(cpu_share_while_idle(), kShare) << "before a step";
    EXPECT_EQ(begun(solo.engine).outcome, OTR_STEP_APPLIED);
    EXPECT_LT(cpu_share_while_idle(), kShare) << "between steps";
    const pid_t child = in_child([&] {
      EXPECT_LT(cpu_share_while_idle(), kShare) << "in a forked child";
      leave(7);
    });
    EXPECT_EQ(exit_code_of(child, 10), 7);
    EXPECT_LT(cpu_share_while_idle(), kShare) << "after a fork";
  }
}

// A wait for others sleeps, too.
TEST(Idle, AWaitSleeps) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(kKinds[3]));
    engine.add("w", {kElements}, Values(kElements, 1));
    engine.commit();
    engine.pass({{0, Values(kElements, 1)}});
    EXPECT_OK(otr_engine_step_begin(engine.get()));
    if (rank == 0) {
      EXPECT_EQ(begun_report(engine).outcome, OTR_STEP_APPLIED);
      EXPECT_LT(cpu_share_while_idle(), 0.05) << "the other rank waits in a barrier";
    }
    EXPECT_OK(otr_comm_barrier(comm));
    EXPECT_EQ(begun_report(engine).outcome, OTR_STEP_APPLIED);
  });
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// How processes find each other, and what they hear when they do not.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/packet.h"
#include "core/comm/rendezvous_impl.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm::test {
namespace {

Ranks group_of(int32_t world, double timeout) {
  static int jobs = 0;
  return {Provider::shm, world, timeout, LivenessSource::best,
          outrigger::format_text("attach {} {}", getpid(), jobs++)};
}

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void expect_all(const std::vector<Outcome>& outcomes, int32_t status,
                const std::vector<std::string>& says) {
  for (size_t r = 0; r < outcomes.size(); r++) {
    EXPECT_EQ(outcomes[r].status, status) << "process " << r << ": " << outcomes[r].text;
    expect_says(outcomes[r].text, says);
  }
}

TEST(Attach, AnyOrderOfStarting) {
  for (int32_t late = 0; late < 3; late++) {
    const Ranks group = group_of(3, 30);
    const auto outcomes = run_processes(3, [&](int32_t rank) {
      if (rank == late) pause(0.2);
      attach(group, rank)->barrier("end");
    });
    expect_all(outcomes, OTR_OK, {});
  }
}

TEST(Attach, MissingRanksAreNamedToThoseWhoCame) {
  const Ranks group = group_of(5, 1);
  const double start = now();
  const auto outcomes =
      run_processes(3, [&](int32_t i) { static_cast<void>(attach(group, i == 2 ? 4 : i)); });
  expect_all(outcomes, OTR_E_TIMEOUT, {"2 of 5 ranks", "missing ranks 2, 3", group.job});
  for (const auto& outcome : outcomes) EXPECT_LT(outcome.ended_at - start, 1.3);
}

// The shortest patience decides, so that all hear who was missing.
TEST(Attach, MissingRanksAreNamedUnderDifferentTimeouts) {
  const Ranks patient = group_of(3, 30);
  Ranks hasty = patient;
  hasty.timeout = 0.6;
  const double start = now();
  const auto outcomes =
      run_processes(2, [&](int32_t i) { static_cast<void>(attach(i == 0 ? patient : hasty, i)); });
  expect_all(outcomes, OTR_E_TIMEOUT, {"1 of 3 ranks", "missing rank 2"});
  for (const auto& outcome : outcomes) EXPECT_LT(outcome.ended_at - start, 1);
}

TEST(Attach, MissingRank0IsNamed) {
  const Ranks group = group_of(3, 0.6);
  const auto outcomes =
      run_processes(2, [&](int32_t i) { static_cast<void>(attach(group, i + 1)); });
  expect_all(outcomes, OTR_E_TIMEOUT, {"rank 0 did not come", group.job});
}

TEST(Attach, AnotherWorldSizeIsAMismatchForAll) {
  const Ranks three = group_of(3, 30);
  Ranks four = three;
  four.world = 4;
  const auto outcomes = run_processes(3, [&](int32_t i) {
    if (i == 2) pause(0.2);
    static_cast<void>(attach(i == 2 ? four : three, i));
  });
  expect_all(outcomes, OTR_E_MISMATCH, {"rank 2", "world size 4", "rank 0 for 3"});
}

TEST(Attach, ARankThatIsThereTwiceIsAMismatchForAll) {
  const Ranks group = group_of(4, 30);
  for (const int32_t twice : {0, 1}) {
    const auto outcomes = run_processes(3, [&](int32_t i) {
      if (i == 2) pause(0.2);
      static_cast<void>(attach(group, i == 2 ? twice : i));
    });
    expect_all(outcomes, OTR_E_MISMATCH,
               {outrigger::format_text("rank {} of job", twice), "is there twice"});
  }
}

TEST(Attach, ADeathMeanwhileIsReported) {
  const Ranks group = group_of(4, 30);
  for (const int32_t victim : {0, 2}) {
    board().moment = 0;
    const auto outcomes = run_processes(3, [&](int32_t rank) {
      std::thread killer;
      if (rank == victim) {
        killer = std::thread([] {
          pause(0.3);
          board().moment = now();
          raise(SIGKILL);
        });
      }
      static_cast<void>(attach(group, rank));
    });
    for (int32_t r = 0; r < 3; r++) {
      const Outcome& outcome = outcomes[static_cast<size_t>(r)];
      EXPECT_EQ(outcome.status, r == victim ? kKilled : OTR_E_PEER_DEAD) << outcome.text;
      if (r == victim) continue;
      expect_says(outcome.text, {outrigger::format_text("rank {} of job", victim)});
      EXPECT_LT(outcome.ended_at - board().moment, 1.0);
    }
  }
}

TEST(Attach, TwoJobsAtOnceAreIndependent) {
  const Ranks one = group_of(2, 30), two = group_of(2, 30);
  const auto outcomes = run_processes(4, [&](int32_t i) {
    const auto comm = attach(i < 2 ? one : two, i % 2);
    for (int32_t k = 0; k < 200; k++) {
      int32_t value = comm->rank() == 0 ? i * 1000 + k : -1;
      comm->broadcast(std::as_writable_bytes(std::span(&value, 1)), 0, "value");
      require(value == (i < 2 ? 0 : 2) * 1000 + k, "another job's value");
    }
  });
  expect_all(outcomes, OTR_OK, {});
}

TEST(Attach, AJobsNameIsFreeAgainAfterACrash) {
  const Ranks group = group_of(2, 30);
  for (int i = 0; i < 20; i++) {
    const auto outcomes = run_processes(2, [&](int32_t rank) {
      const auto comm = attach(group, rank);
      comm->barrier("together");
      if (i % 3 == 0 || rank == i % 2) raise(SIGKILL);
      comm->barrier("apart");
    });
    EXPECT_NE(outcomes[0].status, OTR_OK);
  }
  // Also while rank 0 was still waiting for the others.
  const auto waiting = run_processes(1, [&](int32_t) {
    std::thread([] {
      pause(0.1);
      raise(SIGKILL);
    }).detach();
    static_cast<void>(attach(group, 0));
  });
  EXPECT_EQ(waiting[0].status, kKilled);
  expect_all(run_processes(2, [&](int32_t rank) { attach(group, rank)->barrier("end"); }), OTR_OK,
             {});
}

// Somebody who is no rank knocks, says nothing or nonsense, and holds up nobody.
TEST(Attach, StrangersAtTheDoorAreIgnored) {
  const Ranks group = group_of(2, 30);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  const auto outcomes = run_processes(3, [&](int32_t i) {
    char done = 0;
    // Rank 0 waits at the door until the strangers have been there.
    if (i == 1) require(read(reading.get(), &done, 1) == 1, "told");
    if (i < 2) {
      attach(group, i)->barrier("end");
      return;
    }
    const SocketAddress address(group.job);
    const double deadline = now() + 20;
    std::vector<UniqueFd> held;
    for (int k = 0; k < 30; k++) {
      UniqueFd fd = open_socket();
      while (connect(fd.get(), address.get(), address.size()) != 0) {
        require(now() < deadline, "strangers got to the door");
        pause(0.001);
      }
      if (k % 3 == 1) {
        require(send(fd.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL) == 18, "sent");
      } else if (k % 3 == 2) {
        const std::vector<char> flood(60000, 'x');
        require(send(fd.get(), flood.data(), flood.size(), MSG_NOSIGNAL) > 0, "sent");
      }
      held.push_back(std::move(fd));
    }
    require(write(writing.get(), &done, 1) == 1, "told");
    pause(0.6);
  });
  expect_all(outcomes, OTR_OK, {});
}

// So many at once that there is no room for all at the door: the rank behind them waits its turn.
TEST(Attach, ARankBehindManyStrangersComesIn) {
  const Ranks group = group_of(2, 20);
  auto& numbers = board().numbers;
  for (const size_t n : {0, 1}) numbers[n] = 0;
  const auto outcomes = run_processes(3, [&](int32_t i) {
    if (i == 0) {
      numbers[0] = getpid();
      attach(group, 0)->barrier("end");
      return;
    }
    if (i == 1) {
      while (numbers[1] == 0) pause(0.001);
      attach(group, 1)->barrier("end");
      return;
    }
    const SocketAddress address(group.job);
    std::vector<UniqueFd> held;
    const auto knock = [&](bool speaks) {
      held.push_back(open_socket());
      while (connect(held.back().get(), address.get(), address.size()) != 0) pause(0.001);
      if (speaks) require(send(held.back().get(), "x", 1, MSG_NOSIGNAL) == 1, "sent");
    };
    for (int k = 0; k < 12; k++) knock(false);
    pause(0.3);  // rank 0 has let them in
    const auto rank_0 = static_cast<pid_t>(numbers[0]);
    kill(rank_0, SIGSTOP);
    pause(0.1);
    for (int k = 0; k < 10; k++) knock(true);
    numbers[1] = 1;
    pause(0.3);
    kill(rank_0, SIGCONT);
    pause(0.5);
  });
  expect_all(outcomes, OTR_OK, {});
}

TEST(Attach, AnotherVersionIsAMismatchThatNamesBoth) {
  const Ranks group = group_of(3, 30);
  const auto outcomes = run_processes(2, [&](int32_t i) {
    if (i == 0) {
      static_cast<void>(attach(group, 0));
      return;
    }
    UniqueFd fd;
    const SocketAddress address(group.job);
    do {
      fd = open_socket();
    } while (connect(fd.get(), address.get(), address.size()) != 0);
    struct NewerHello {
      PacketHead head{.version = kLayoutVersion + 7, .kind = Hello::kKind};
      std::array<char, 200> more = {};
    };
    require(send_packet(fd.get(), NewerHello{}) == PacketResult::done, "sent");
    pause(0.3);
  });
  EXPECT_EQ(outcomes[0].status, OTR_E_MISMATCH);
  expect_says(outcomes[0].text, {outrigger::format_text("version {}", kLayoutVersion + 7),
                                 outrigger::format_text("rank 0 has {}", kLayoutVersion)});
}

// Something else listens where rank 0 should.
TEST(Attach, AForeignRank0IsAMismatch) {
  const Ranks group = group_of(2, 5);
  const auto outcomes = run_processes(2, [&](int32_t i) {
    if (i == 1) {
      static_cast<void>(attach(group, 1));
      return;
    }
    UniqueFd door = open_socket();
    const SocketAddress address(group.job);
    require(bind(door.get(), address.get(), address.size()) == 0 && listen(door.get(), 5) == 0,
            "listens");
    require(wait_for_socket(door.get(), POLLIN, 0.1) || wait_for_socket(door.get(), POLLIN, 0.1),
            "knocked");
    const UniqueFd guest(accept(door.get(), nullptr, nullptr));
    require(send(guest.get(), "220 hello", 9, MSG_NOSIGNAL) == 9, "sent");
    pause(0.3);
  });
  EXPECT_EQ(outcomes[1].status, OTR_E_MISMATCH) << outcomes[1].text;
  expect_says(outcomes[1].text, {"does not speak this library's protocol"});
}

TEST(Attach, AnotherUsersRank0IsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const Ranks group = group_of(2, 5);
  const SocketAddress address(group.job);  // of this user
  const auto outcomes = run_processes(2, [&](int32_t i) {
    if (i == 1) {
      pause(0.1);
      static_cast<void>(attach(group, 1));
      return;
    }
    require(setuid(65534) == 0, "setuid");
    UniqueFd door = open_socket();
    require(bind(door.get(), address.get(), address.size()) == 0 && listen(door.get(), 5) == 0,
            "listens");
    pause(0.5);
  });
  EXPECT_EQ(outcomes[1].status, OTR_E_SYSTEM) << outcomes[1].text;
  expect_says(outcomes[1].text, {"held by user 65534"});
}

TEST(Attach, AWorldOfOneNeedsNobody) {
  const Ranks group = group_of(1, 0.5);
  expect_all(run_processes(1, [&](int32_t) { attach(group, 0)->barrier("alone"); }), OTR_OK, {});
}

// Ranks may be threads of one process, too, as far as liveness can tell them apart.
TEST(Attach, RanksOfOneProcess) {
  const Ranks group = group_of(3, 10);
  std::vector<std::thread> threads;
  std::atomic<int> sum = 0;
  for (int32_t r = 0; r < 3; r++) {
    threads.emplace_back([&, r] {
      const auto comm = attach(group, r);
      const auto window = comm->create_window(WindowKind::per_rank, 100, "w");
      window->block(r)[0] = static_cast<std::byte>(r + 1);
      comm->barrier("written");
      for (int32_t k = 0; k < 3; k++) sum += static_cast<int>(window->block(k)[0]);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, 3 * 6);
}

}  // namespace
}  // namespace outrigger::comm::test

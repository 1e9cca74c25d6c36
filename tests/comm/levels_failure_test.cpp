// SPDX-License-Identifier: Apache-2.0
// Failures in communicators of two levels: every rank of every host hears of it, by one text that
// names a rank by its number among all.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/forwarding.h"
#include "core/comm/hierarchical.h"
#include "core/comm/watching.h"
#include "tests/comm/levels.h"

namespace outrigger::comm::test {
namespace {

class Levels : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Goes, Levels, testing::Values(0, 1, 4, 5));

std::string name_of(int32_t rank) { return outrigger::format_text("rank {} of all, ", rank); }

// Whoever waits for a rank that left, on its host, across hosts, or for one that waits for it: all
// end at once, with one text.
TEST_P(Levels, ARankThatLeavesEndsEveryWait) {
  const auto outcomes = run({Provider::hierarchical_threads, 6, 20}, [](Communicator& c) {
    Sums sums(c);
    for (int i = 0; i < 3; i++) sums.reduce(c);
    if (c.rank() == GetParam()) return;
    for (int i = 0; i < 10; i++) sums.reduce(c);
  });
  EXPECT_EQ(outcomes[static_cast<size_t>(GetParam())].status, OTR_OK);
  EXPECT_EQ(one_text(outcomes, OTR_E_PEER_DEAD, GetParam()).find(name_of(GetParam())), 0U);
}

// One object of the job ends, as on one level: the others go on, on all ranks.
TEST_P(Levels, ARankThatLeavesOneObjectLeavesTheOthers) {
  std::vector<std::string> texts(6);
  run_all_well({Provider::hierarchical_threads, 6, 20}, [&](Communicator& c) {
    auto other = c.duplicate("other");
    Sums kept(c), left(*other);
    left.reduce(*other);
    if (c.rank() == GetParam()) {
      other.reset();
    } else {
      try {
        for (int i = 0; i < 10; i++) left.reduce(*other);
        require(false, "went on");
      } catch (const Error& error) {
        require(error.status() == OTR_E_PEER_DEAD && error.culprit() == GetParam(), error.what());
        texts[static_cast<size_t>(c.rank())] = error.what();
      }
      try {
        other->check();
        require(false, "is well");
      } catch (const Error& error) {
        require(texts[static_cast<size_t>(c.rank())] == error.what(), error.what());
      }
    }
    for (int i = 0; i < 3; i++) kept.reduce(c);
    c.barrier("in step");
  });
  texts.erase(texts.begin() + GetParam());
  for (const auto& text : texts) EXPECT_EQ(text, texts.front());
}

// Who waits for a rank that gave up because of another is told of that one, wherever it is.
TEST_P(Levels, TheFirstToGoIsNamedByAll) {
  for (const int32_t messenger : {2, 3}) {
    const auto outcomes = run({Provider::hierarchical_threads, 6, 20}, [&](Communicator& c) {
      const auto other = c.duplicate("other");
      Sums sums(*other);
      sums.reduce(*other);
      if (c.rank() == messenger) {
        other->give_up(GetParam());
      } else {
        try {
          for (int i = 0; i < 10; i++) sums.reduce(*other);
        } catch (const Error& error) {
          require(error.culprit() == GetParam(), error.what());
          c.barrier("the job goes on");
          throw;
        }
      }
      c.barrier("the job goes on");
    });
    const auto text = one_text(outcomes, OTR_E_PEER_DEAD, messenger);
    EXPECT_EQ(text.find(name_of(GetParam())), 0U) << text;
    expect_says(text, {outrigger::format_text("because of rank {} of all", GetParam())});
  }
}

// Only this rank's calls end; the others see it leave, and never hear of the cancellation.
TEST_P(Levels, ACancellationIsNotToldToTheOthers) {
  const auto outcomes = run({Provider::hierarchical_threads, 6, 20}, [](Communicator& c) {
    auto other = c.duplicate("other");
    Sums sums(*other);
    sums.reduce(*other);
    if (c.rank() == GetParam()) {
      std::thread canceller([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        other->cancel();
      });
      try {
        sums.reduce(*other);
        require(false, "the pending sum went on");
      } catch (const Error& error) {
        require(error.status() == OTR_E_ABORTED, error.what());
        expect_says(error.what(), {"was cancelled on rank"});
      }
      canceller.join();
    }
    c.barrier("cancelled");
    if (c.rank() == GetParam()) {
      other.reset();
    } else {
      for (int i = 0; i < 10; i++) sums.reduce(*other);
    }
  });
  EXPECT_EQ(outcomes[static_cast<size_t>(GetParam())].status, OTR_OK);
  EXPECT_EQ(one_text(outcomes, OTR_E_PEER_DEAD, GetParam()).find(name_of(GetParam())), 0U);
}

// Ranks that wait for one that waits for the silent one name the silent one, too.
TEST_P(Levels, OneThatSilentlyStaysAwayIsATimeoutForAll) {
  const auto outcomes = run({Provider::hierarchical_threads, 6, 0.5}, [](Communicator& c) {
    Sums sums(c);
    sums.reduce(c);
    if (c.rank() == GetParam()) std::this_thread::sleep_for(std::chrono::milliseconds(1600));
    sums.reduce(c);
  });
  const auto text = one_text(outcomes, OTR_E_TIMEOUT);
  EXPECT_EQ(text.find(name_of(GetParam())), 0U) << text;
}

TEST_P(Levels, ADifferentCallIsAMismatchForAll) {
  const auto outcomes = run({Provider::hierarchical_threads, 6, 20}, [](Communicator& c) {
    Sums sums(c);
    sums.reduce(c);
    sums.reduce(c, c.rank() == GetParam() ? "other" : "grads");
    sums.reduce(c);
  });
  // The second of the two on the host is the one that differs.
  const auto text = one_text(outcomes, OTR_E_MISMATCH);
  EXPECT_EQ(text.find(name_of(GetParam() / 2 * 2 + 1)), 0U) << text;
}

TEST_P(Levels, AnAbortEndsAll) {
  const auto outcomes = run({Provider::hierarchical_threads, 6, 20}, [](Communicator& c) {
    Sums sums(c);
    for (int i = 0; i < 100; i++) {
      sums.reduce(c);
      if (i == 3 && c.rank() == GetParam()) c.abort("out of coffee");
    }
  });
  expect_says(one_text(outcomes, OTR_E_ABORTED),
              {outrigger::format_text("rank {}", GetParam()), "out of coffee"});
}

// ---- Faults in either half of a sum -------------------------------------------------------------

class FaultyHost final : public device::Host {
 public:
  explicit FaultyHost(int at) : Host(nullptr), at_(at) {}
  kernels::NormSum fold(const device::SliceFold& slice, device::Nonfinite& origin) override {
    if (at_-- == 0) fail(OTR_E_INTERNAL, "fold fault");
    return Host::fold(slice, origin);
  }

 private:
  int at_;
};

// A sum is of three folds on a host and one across them.
TEST_P(Levels, AFoldThatThrowsAbortsTheJob) {
  for (const int at : {0, 2, 3, 4}) {
    const auto outcomes = run({Provider::hierarchical_threads, 6, 20}, [&](Communicator& c) {
      FaultyHost device(c.rank() == GetParam() ? at : -1);
      Sums sums(c, &device);
      for (int i = 0; i < 10; i++) sums.reduce(c);
    });
    const auto& own = outcomes[static_cast<size_t>(GetParam())];
    EXPECT_EQ(own.status, OTR_E_INTERNAL) << own.text;
    expect_says(one_text(outcomes, OTR_E_ABORTED, GetParam()), {"fold fault"});
  }
}

// Fails in operation number `at`, as the function says.
class FaultyGroup final : public Forwarding {
 public:
  using Fault = std::function<void(Communicator&)>;
  FaultyGroup(std::unique_ptr<Communicator> inner, int at, Fault fault)
      : Forwarding(std::move(inner)), at_(at), fault_(std::move(fault)) {}
  std::unique_ptr<Communicator> duplicate(std::string_view name) override {
    return std::make_unique<FaultyGroup>(Forwarding::duplicate(name), at_, fault_);
  }
  std::span<const void* const> exchange(const Window& window, size_t offset, size_t slice_bytes,
                                        std::string_view label) override {
    if (at_-- == 0) fault_(inner());
    return Forwarding::exchange(window, offset, slice_bytes, label);
  }
  void wait_drained(uint64_t ticket, std::string_view label) override {
    if (at_-- == 0) fault_(inner());
    Forwarding::wait_drained(ticket, label);
  }
  void all_gather_parts(std::span<const Part> parts, std::string_view label) override {
    if (at_-- == 0) fault_(inner());
    Forwarding::all_gather_parts(parts, label);
  }

 private:
  int at_;
  const Fault fault_;
};

// On rank 4 of 6, in one of the two groups.
std::vector<Outcome> with_fault(bool on_host, int at, const FaultyGroup::Fault& fault,
                                const std::function<void(Communicator&)>& body) {
  return run({Provider::threads, 6, 20}, [&](Communicator& c) {
    auto host = split(c, c.rank() / 2, c.rank()), across = split(c, c.rank() % 2, c.rank());
    auto& faulty = on_host ? host : across;
    if (c.rank() == 4) faulty = std::make_unique<FaultyGroup>(std::move(faulty), at, fault);
    body(*make_hierarchical(c, *host, *across));
  });
}

// What the caller's functions raised comes back to the caller, and is told to the others.
TEST(LevelsFault, AHostsOwnErrorStaysItsOwn) {
  for (const bool on_host : {true, false}) {
    for (const int at : {0, 1, 2, 3}) {
      const auto outcomes = with_fault(
          on_host, at, [](Communicator&) { fail(OTR_E_HOST, "the caller's function raised"); },
          [](Communicator& c) {
            Sums sums(c);
            for (int i = 0; i < 5; i++) sums.reduce(c);
          });
      EXPECT_EQ(outcomes[4].status, OTR_E_HOST) << outcomes[4].text;
      const auto text = one_text(outcomes, OTR_E_ABORTED, 4);
      EXPECT_EQ(text.find(name_of(4)), 0U) << text;
      expect_says(text, {on_host ? "among the ranks of its host" : "across hosts", "raised"});
    }
  }
}

// An interrupt in a wait of which only one group knows that it ended its job.
TEST(LevelsFault, AnInterruptThatEndsOneGroupEndsAll) {
  const auto outcomes = with_fault(
      false, 1,
      [](Communicator& across) {
        across.abort("interrupted while ranks were moving data");
        fail(OTR_E_INTERRUPTED, "was interrupted");
      },
      [](Communicator& c) {
        Sums sums(c);
        sums.reduce(c);
        sums.reduce(c);  // first waits until the sums before are read
        sums.reduce(c);
      });
  EXPECT_EQ(outcomes[4].status, OTR_E_INTERRUPTED) << outcomes[4].text;
  one_text(outcomes, OTR_E_ABORTED, 4);
}

// An interrupt before anything has moved is none to anybody else: the call is made again.
TEST(LevelsFault, AnInterruptBeforeASumHasMovedIsNoFailure) {
  struct Moment {
    bool on_host;
    int at;
    bool goes_on;
  };
  // On the host, three exchanges are of one sum, and the first is its beginning; across, the wait
  // until the sums before are read is the beginning, and the exchange is not.
  for (const Moment& m : {Moment{true, 0, true}, Moment{true, 3, true}, Moment{true, 1, false},
                          Moment{false, 1, true}, Moment{false, 0, false}}) {
    const auto outcomes = with_fault(
        m.on_host, m.at, [](Communicator&) { fail(OTR_E_INTERRUPTED, "was interrupted"); },
        [](Communicator& c) {
          Sums sums(c);
          for (int i = 0; i < 4; i++) {
            try {
              sums.reduce(c);
            } catch (const Error& error) {
              if (error.status() != OTR_E_INTERRUPTED) throw;
              sums.reduce(c);
            }
          }
        });
    SCOPED_TRACE(outrigger::format_text("{} {}", m.on_host ? "host" : "across", m.at));
    one_text(outcomes, m.goes_on ? OTR_OK : OTR_E_ABORTED);
  }
}

TEST(LevelsFault, InAGatherToo) {
  const auto outcomes = with_fault(
      false, 0, [](Communicator&) { fail(OTR_E_HOST, "raised"); },
      [](Communicator& c) {
        Sums sums(c);
        c.all_gather_window(*sums.window, 0, sums.bytes, "parameters");
      });
  EXPECT_EQ(outcomes[4].status, OTR_E_HOST) << outcomes[4].text;
  EXPECT_EQ(one_text(outcomes, OTR_E_ABORTED, 4).find(name_of(4)), 0U);
}

// Who waits in a part of a group, and hears of the whole's failure, names a rank of the whole.
TEST(Watching, NamesARankOfTheWhole) {
  const auto ranks = make_threads(3, {});
  const Watching whole(*ranks[0]);
  Watching::check();
  ranks[2]->abort("enough");
  try {
    Watching::check();
    FAIL() << "the whole is over";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), OTR_E_ABORTED);
    EXPECT_EQ(error.culprit(), rank_outside(2));
  }
}

}  // namespace
}  // namespace outrigger::comm::test

// SPDX-License-Identifier: Apache-2.0
// Communicators of two levels: groups that do not fit each other, and failures while they are made.
#include <gtest/gtest.h>

#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/forwarding.h"
#include "core/comm/hierarchical.h"
#include "core/context/interrupt.h"
#include "tests/comm/levels.h"

namespace outrigger::comm::test {
namespace {

using Comm = std::unique_ptr<Communicator>;

// The groups of hosts of two ranks each.
struct Two {
  explicit Two(Communicator& all)
      : host(split(all, all.rank() / 2, all.rank())),
        across(split(all, all.rank() % 2, all.rank())) {}
  Comm host, across;
};

void sums_well(Communicator& c) {
  Sums sums(c);
  for (int i = 0; i < 3; i++) sums.reduce(c);
  c.wait_drained(sums.ticket, "end");
}

// ---- Groups that do not fit ---------------------------------------------------------------------

TEST(LevelsMade, RightNumbersOfWrongRanksAreRefused) {
  std::vector<Outcome> outcomes = run({Provider::threads, 4}, [](Communicator& c) {
    const Two good(c);
    // Ranks 0 and 3 take each other for their counterparts; both numbers are what they should be.
    const bool outer = c.rank() == 0 || c.rank() == 3;
    const Comm crossed = split(c, outer ? 0 : 1, c.rank());
    static_cast<void>(make_hierarchical(c, *good.host, *crossed));
  });
  expect_says(one_text(outcomes, OTR_E_ARGUMENT),
              {"rank 0 of 4 has rank 3 as rank 1 of its group across, where rank 2 belongs"});
  outcomes = run({Provider::threads, 4}, [](Communicator& c) {
    const Two good(c);
    const bool outer = c.rank() == 0 || c.rank() == 3;
    const Comm crossed = split(c, outer ? 0 : 1, c.rank() % 2);
    try {
      static_cast<void>(make_hierarchical(c, *crossed, *good.across));
      require(false, "was made");
    } catch (const Error&) {  // and the groups can be used
      sums_well(*make_hierarchical(c, *good.host, *good.across));
      throw;
    }
  });
  expect_says(one_text(outcomes, OTR_E_ARGUMENT),
              {"rank 0 of 4 has rank 3 as rank 1 of its group host, where rank 1 belongs"});
}

TEST(LevelsMade, RanksOfAnotherCommunicatorAreRefused) {
  const auto outcomes = run({Provider::threads, 4}, [](Communicator& c) {
    // Two jobs of two hosts, 0 1 and 2 3, each with the other's second host.
    const Comm all = split(c, c.rank() / 2, c.rank());
    const Comm crossed = split(c, c.rank() % 3 == 0 ? 0 : 1, c.rank() % 2);
    static_cast<void>(make_hierarchical(*all, *make_self(), *crossed));
  });
  expect_says(one_text(outcomes, OTR_E_ARGUMENT),
              {"rank 0 of 2 has a rank of another communicator as rank 1 of its group across"});
}

TEST(LevelsMade, ThreeLevelsAreRefused) {
  const auto outcomes = run({Provider::threads, 4}, [](Communicator& c) {
    const Two groups(c);
    const Comm both = make_hierarchical(c, *groups.host, *groups.across);
    sums_well(
        *make_hierarchical(*both, *groups.host, *groups.across));  // for all, one may be given
    static_cast<void>(make_hierarchical(c, *both, *make_self()));
  });
  expect_says(one_text(outcomes, OTR_E_UNSUPPORTED), {"rank 0 gives", "two levels, not three"});
}

TEST(LevelsMade, TheGroupsCanGo) {
  run_all_well({Provider::threads, 4}, [](Communicator& c) {
    Comm both;
    {
      const Two groups(c);
      both = make_hierarchical(c, *groups.host, *groups.across);
      sums_well(*both);
    }
    for (int i = 0; i < 3; i++) {
      both = both->duplicate("next");  // the last one goes
      sums_well(*both);
    }
    const Comm half = split(*both, both->rank() % 2, -both->rank());
    require(half->size() == 2 && half->groups() == 1, "a part has one level");
    sums_well(*half);
  });
}

// ---- Failures while they are made ---------------------------------------------------------------

// Fails when it is duplicated for the `at`-th time.
class Faulty final : public Forwarding {
 public:
  Faulty(Comm inner, int at, int32_t status)
      : Forwarding(std::move(inner)), at_(at), status_(status) {}
  Comm duplicate(std::string_view name) override {
    Comm made = Forwarding::duplicate(name);
    if (at_ == 0) fail(status_, "'{}' was not to be had", name);
    return std::make_unique<Faulty>(std::move(made), at_ - 1, status_);
  }

 private:
  const int at_;
  const int32_t status_;
};

// One host's ranks have no memory for their group: no rank has it, and what was there goes on.
TEST(LevelsMade, WhatOneHostLacksAllLack) {
  for (const bool on_host : {true, false}) {
    for (const int at : {0, 1}) {
      const auto outcomes = run({Provider::threads, 4, 5}, [&](Communicator& c) {
        Two groups(c);
        const bool lacks = on_host ? c.rank() / 2 == 1 : c.rank() % 2 == 1;
        Comm& faulty = on_host ? groups.host : groups.across;
        if (lacks) faulty = std::make_unique<Faulty>(std::move(faulty), at, OTR_E_OUT_OF_MEMORY);
        Comm both;
        try {
          both = make_hierarchical(c, *groups.host, *groups.across);
          static_cast<void>(both->duplicate("copy"));
        } catch (const Error&) {
          require((both != nullptr) == (at > 0), "made");
          if (both) sums_well(*both);
          c.barrier("in step");
          throw;
        }
      });
      expect_says(one_text(outcomes, OTR_E_OUT_OF_MEMORY),
                  {on_host ? "rank 2" : "rank 1", "was not to be had"});
    }
  }
}

// Any other failure on one rank ends it for all, soon, and without what the groups are made of.
TEST(LevelsMade, AFailureOnOneRankIsToldToAll) {
  for (const bool on_host : {true, false}) {
    for (const int at : {0, 1}) {
      const double start = now();
      const auto outcomes = run({Provider::threads, 6}, [&](Communicator& c) {
        Two groups(c);
        Comm& faulty = on_host ? groups.host : groups.across;
        if (c.rank() == 3) {
          faulty = std::make_unique<Faulty>(std::move(faulty), at, OTR_E_PEER_DEAD);
        }
        const Comm both = make_hierarchical(c, *groups.host, *groups.across);
        require(at == 1, "made");
        static_cast<void>(both->duplicate("copy"));
        sums_well(*both);
      });
      expect_says(one_text(outcomes, OTR_E_PEER_DEAD), {"rank 3 ", "was not to be had"});
      EXPECT_LT(now() - start, 5);
    }
  }
}

// Whoever has left one of the three groups, the others hear of it.
TEST(LevelsMade, ARankThatHasLeftAGroupIsNoticed) {
  for (const bool on_host : {true, false}) {
    const double start = now();
    const auto outcomes = run({Provider::threads, 4}, [&](Communicator& c) {
      const Two groups(c);
      if (c.rank() == 1) (on_host ? groups.host : groups.across)->cancel();
      static_cast<void>(make_hierarchical(c, *groups.host, *groups.across));
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, OTR_E_ABORTED);
    EXPECT_LT(now() - start, 5);
  }
}

// ---- Interrupts ---------------------------------------------------------------------------------

// Before the others have come it can be made again; later it is over for all.
TEST(LevelsMade, InterruptedBeforeAllHaveComeItIsMadeAgain) {
  static std::atomic<bool> stop;
  stop = true;
  otr_context_options options;
  require(otr_context_options_init(&options, sizeof options) == OTR_OK, "options");
  options.workers = 1;
  options.interrupt_callback = [](void*) -> int32_t { return stop ? 1 : 0; };
  const Context context(options);
  run_all_well({Provider::threads, 4}, [&](Communicator& c) {
    const Two groups(c);
    if (c.rank() != 2) {
      const Interruptible scope(context);
      for (int i = 0; i < 2; i++) {
        try {
          static_cast<void>(make_hierarchical(c, *groups.host, *groups.across));
          require(false, "made without rank 2");
        } catch (const Error& error) {
          require(error.status() == OTR_E_INTERRUPTED, error.what());
        }
      }
      if (++board().numbers[0] == 3) stop = false;
    } else {
      while (board().numbers[0] < 3) std::this_thread::yield();
    }
    sums_well(*make_hierarchical(c, *groups.host, *groups.across));
  });
}

}  // namespace
}  // namespace outrigger::comm::test

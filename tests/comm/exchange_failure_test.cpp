// SPDX-License-Identifier: Apache-2.0
// An exchange when something is amiss: memory that is still read, ranks that go their own way, and
// hosts that interrupt, cancel and stop.
#include "tests/comm/sums.h"

namespace outrigger::comm::test {
namespace {

class ExchangeFailure : public ExchangeTest {};
INSTANTIATE_TEST_SUITE_P(Providers, ExchangeFailure,
                         testing::Combine(testing::Values(Ranks{Provider::threads, 3, 30},
                                                          Ranks{Provider::shm, 3, 30}),
                                          kRuns),
                         name_of_case);

TEST_P(ExchangeFailure, MemoryIsFilledAgainWhenAllRanksHaveReadIt) {
  run_all_well(group(), [this](Communicator& c) {
    const auto exchange = exchange_of(c);
    Sums sums(*exchange, c, 2);
    if (c.rank() == 1) sums.host.door = 1;
    const auto first = exchange->begin(sums.reduction(0, 1));
    exchange->begin(sums.reduction(0, 2));
    WaitBeside all(*exchange);
    if (c.rank() != 1) {
      while (!exchange->is_done(first)) pause(1);
      pause(30);
      require(exchange->is_done(first) && !exchange->is_drained(first), "rank 1 reads");
      require(sums.fills == 1, "filled while rank 1 reads");
      c.barrier("seen");
      if (c.rank() == 0) open_door(1);
    } else {
      c.barrier("seen");
    }
    all.join();
    sums.require_sum(3 + 2 * ranks_mean(c));
    while (!exchange->is_drained(first + 1)) pause(1);
  });
}

TEST_P(ExchangeFailure, AWaitForMemoryEndsWithTheDeadlineAndNamesIt) {
  Ranks impatient = group();
  impatient.timeout = 1;
  const auto outcomes = run(impatient, [this](Communicator& c) {
    const auto exchange = exchange_of(c);
    Sums sums(*exchange, c, 1);
    if (c.rank() == 2) sums.host.door = 1;
    for (const float value : {1.F, 2.F}) exchange->begin(sums.reduction(0, value));
    text_of([&] { exchange->wait_all(); }, OTR_E_TIMEOUT);
    open_door(1);
    exchange->check();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status, OTR_E_TIMEOUT);
    EXPECT_EQ(outcome.text, outcomes[0].text);
  }
  expect_says(outcomes[0].text, {"rank 2", "wait_drained 'reuse a place'"});
}

// One text for all, from the wait and from check; what comes later does not run any more.
TEST_P(ExchangeFailure, ReachesWaitAndCheckOfAllRanks) {
  const auto outcomes = run(group(), [this](Communicator& c) {
    const auto exchange = exchange_of(c);
    const auto good = exchange->begin(nothing("in step"));
    const auto bad = exchange->begin(nothing(c.rank() == 1 ? "step" : "save"));
    Combination later = nothing("later");
    later.prepare = [&] { board().numbers[10]++; };
    const auto last = exchange->begin(std::move(later));
    const std::string text = text_of([&] { exchange->wait(bad); }, OTR_E_MISMATCH);
    exchange->wait(good);
    require(text_of([&] { exchange->wait(last); }, OTR_E_MISMATCH) == text, "a later one");
    require(!exchange->is_done(bad) && !exchange->is_drained(bad), "done");
    exchange->check();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status, OTR_E_MISMATCH);
    EXPECT_EQ(outcome.text, outcomes[0].text);
  }
  expect_says(outcomes[0].text, {"combine 'step'", "combine 'save'", "rank 1"});
  EXPECT_EQ(board().numbers[10], 0);
}

TEST_P(ExchangeFailure, ARankThatGivesUpIsToldToThoseWhoWait) {
  const auto outcomes = run(group(), [this](Communicator& c) {
    auto first = exchange_of(c), second = exchange_of(c);
    if (c.rank() == 2) {
      first->give_up(1);
      second.reset();
      c.barrier("told");
      return;
    }
    first->begin(nothing("without rank 2"));
    second->begin(nothing("without rank 2"));
    const double start = now();
    text_of([&] { first->wait_all(); }, OTR_E_PEER_DEAD, {"because of rank 1"});
    text_of([&] { second->wait_all(); }, OTR_E_PEER_DEAD, {"rank 2", "left"});
    require(now() - start < kSoon, "took too long");
    c.barrier("told");
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, OTR_OK) << outcome.text;
}

// On this rank; others wait for it until it leaves.
TEST_P(ExchangeFailure, WhatItsOwnCodeThrowsEndsTheSequence) {
  run_all_well(group(), [this](Communicator& c) {
    for (const bool before : {true, false}) {
      auto exchange = exchange_of(c);
      Combination faulty = nothing("facts");
      faulty.prepare = [&] {
        if (before && c.rank() == 0) fail(OTR_E_DEVICE_FAULT, "no device");
      };
      faulty.then = [&]() -> std::vector<Reduction> {
        if (c.rank() == 0) fail(OTR_E_DEVICE_FAULT, "no device");
        return {};
      };
      const auto ticket = exchange->begin(std::move(faulty));
      exchange->begin(nothing("never on rank 0"));
      if (c.rank() == 0) {
        require(text_of([&] { exchange->wait(ticket); }, OTR_E_DEVICE_FAULT) == "no device",
                "text");
        text_of([&] { exchange->check(); }, OTR_E_DEVICE_FAULT);
        exchange.reset();
      } else {
        text_of([&] { exchange->wait_all(); }, OTR_E_PEER_DEAD);
      }
      c.barrier("the job goes on");
    }
  });
}

TEST_P(ExchangeFailure, AnInterruptEndsAWaitAndNothingElse) {
  run_all_well(group(), [this](Communicator& c) {
    ImpatientHost host;
    const auto exchange = exchange_of(c);
    Sums sums(*exchange, c, 1);
    if (c.rank() == 1) wait_for_door(0);
    exchange->begin(sums.reduction(0, 1));
    if (c.rank() == 0) {
      const Interruptible scope(host.context);
      for (int i = 0; i < 2; ++i) {
        const double start = now();
        text_of(
            [&] { exchange->wait_all(); }, OTR_E_INTERRUPTED,
            {runs_in_waits() ? "reduce 'sums'" : "the wait for the test's sequence was interrupted",
             "interrupted by the host of rank 0", "rank 1", "again"});
        require(now() - start < kSoon, "took too long");
      }
      exchange->check();
      host.stop = false;
      open_door(0);
      exchange->wait_all();
    }
    exchange->wait_all();
    require(sums.fills == 1, "filled twice");
    sums.require_sum(1 + ranks_mean(c));
  });
}

// From another thread; `stops`: nothing runs any more, and what had not begun is dropped.
TEST_P(ExchangeFailure, CancelAndStopEndEveryWait) {
  run_all_well(group(), [this](Communicator& c) {
    for (const bool stops : {false, true}) {
      auto exchange = exchange_of(c);
      if (c.rank() == 0) {
        exchange->begin(nothing("nobody comes"));
        const auto last = exchange->begin(nothing("later"));
        std::thread other([&] {
          pause(60);
          stops ? exchange->stop() : exchange->cancel();
        });
        const double start = now();
        text_of([&] { exchange->wait(last); }, OTR_E_ABORTED);
        require(now() - start < kSoon, "took too long");
        other.join();
        exchange->begin(nothing("afterwards"));
        text_of([&] { exchange->wait_all(); }, OTR_E_ABORTED);
      }
      c.barrier("the job goes on");
    }
    // Dropped, though nothing has failed.
    const auto idle = exchange_of(c);
    idle->begin(nothing("together"));
    idle->wait_all();
    idle->stop();
    idle->wait(1);
    idle->begin(nothing("too late"));
    text_of([&] { idle->wait_all(); }, OTR_E_ABORTED, {"the test's sequence was stopped"});
  });
}

TEST_P(ExchangeFailure, StopReturnsWhenNothingRunsAnyMore) {
  run_all_well(group(), [this](Communicator& c) {
    const auto exchange = exchange_of(c);
    std::atomic<bool> runs{false}, ended{false}, later_ran{false};
    Combination slow = nothing("slow"), later = nothing("later");
    slow.then = [&]() -> std::vector<Reduction> {
      runs = true;
      pause(50);
      ended = true;
      return {};
    };
    later.prepare = [&] { later_ran = true; };
    const auto ticket = exchange->begin(std::move(slow));
    exchange->begin(std::move(later));
    WaitBeside all(*exchange);
    while (!runs) pause(1);
    exchange->stop();
    require(ended && exchange->is_done(ticket), "stopped while it ran");
    text_of([&] { all.join(); }, OTR_E_ABORTED, {"the test's sequence was stopped"});
    exchange->wait(ticket);
    require(!later_ran, "what had not begun is dropped");
    c.barrier("the job goes on");
  });
}

}  // namespace
}  // namespace outrigger::comm::test

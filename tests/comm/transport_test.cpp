// SPDX-License-Identifier: Apache-2.0
// A transport's communicators where something goes wrong; that they are communicators,
// comm_conformance tests.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/comm/levels.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm::test {
namespace {

using std::chrono::milliseconds;

constexpr Ranks kThree{Provider::transport, 3, 20};

std::vector<Outcome> run_with(double timeout, const Body& body) {
  Ranks group = kThree;
  group.timeout = timeout;
  return run(group, body);
}

TEST(Transport, ARankThatLeavesEndsThatGroupForAll) {
  run_all_well(kThree, [](Communicator& c) {
    auto copy = c.duplicate("copy");
    if (c.rank() == 1) {
      copy.reset();
    } else {
      try {
        copy->barrier("in vain");
        require(false, "the barrier waits for who has left");
      } catch (const Error& error) {
        const std::string text = error.what();
        require(error.status() == OTR_E_PEER_DEAD && error.culprit() == 1, text);
        require(text.find("rank 1 (process ") == 0 && text.find("left") != text.npos, text);
        require(text.find("barrier 'in vain' (operation 1 of 'copy')") != text.npos, text);
      }
    }
    c.barrier("the others go on");
  });
}

// A rank that leaves after an operation has done its part of it.
TEST(Transport, ARankMayLeaveAfterItsLastOperation) {
  for (int round = 0; round < 20; ++round) {
    run_all_well(kThree, [&](Communicator& c) {
      std::vector<std::byte> mine(5000, std::byte{1}), all(3 * mine.size());
      c.duplicate("copy")->all_gather(mine, all, "last");
      require(all.back() == std::byte{1}, "gathered");
    });
  }
}

TEST(Transport, WhoGivesUpNamesWhoIsToBlame) {
  const auto outcomes = run_with(20, [](Communicator& c) {
    if (c.rank() == 0) {
      c.give_up(2);
      std::this_thread::sleep_for(milliseconds(500));
      return;
    }
    c.barrier("in vain");
  });
  for (const size_t r : {1U, 2U}) {
    EXPECT_EQ(outcomes[r].status, OTR_E_PEER_DEAD);
    expect_says(outcomes[r].text, {"rank 0 (process ", "because of rank 2"});
  }
}

// Word of a rank that went because of another one may overtake what became of that one: all tell
// the latter.
TEST(Transport, TheCauseIsToldWhateverComesFirst) {
  const auto outcomes = run_with(20, [](Communicator& c) {
    if (c.rank() == 0) {
      c.give_up(1);
      std::this_thread::sleep_for(milliseconds(600));
      return;
    }
    if (c.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(300));
      c.abort("the cause");
    }
    c.barrier("in vain");
  });
  for (const size_t r : {1U, 2U}) {
    EXPECT_EQ(outcomes[r].status, OTR_E_ABORTED) << outcomes[r].text;
    expect_says(outcomes[r].text, {"rank 1 aborted the job: the cause"});
  }
}

TEST(Transport, AnAbortReachesEveryDuplicateAndOneText) {
  const auto outcomes = run_with(20, [](Communicator& c) {
    const auto copy = c.duplicate("copy");
    if (c.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(100));
      c.abort("enough");
    }
    copy->barrier("in vain");
  });
  EXPECT_EQ(one_text(outcomes, OTR_E_ABORTED), "rank 2 aborted the job: enough");
}

TEST(Transport, AFailureOfOneChannelLeavesTheOthers) {
  const auto outcomes = run_with(20, [](Communicator& c) {
    const auto copy = c.duplicate("copy");
    if (c.rank() == 0) copy->post(Error(OTR_E_ABORTED, "this one is over", 0));
    try {
      copy->barrier("in vain");
    } catch (const Error& error) {
      c.barrier("the job goes on");
      throw;
    }
  });
  EXPECT_EQ(one_text(outcomes, OTR_E_ABORTED), "this one is over");
}

TEST(Transport, TheDeadlineNamesWhoIsMissingAndWhereItWaits) {
  const auto outcomes = run_with(1, [](Communicator& c) {
    const auto copy = c.duplicate("copy");
    if (c.rank() == 1) {  // in another operation, for which nobody comes in time
      c.barrier("elsewhere");
    } else {
      copy->barrier("here");
    }
  });
  for (const size_t r : {0U, 2U}) {
    EXPECT_EQ(outcomes[r].status, OTR_E_TIMEOUT) << outcomes[r].text;
  }
  EXPECT_EQ(outcomes[1].status, OTR_E_TIMEOUT);
  const std::string text = outcomes[0].text;
  const bool from_here = text.find("barrier 'here'") != text.npos;  // whichever deadline is first
  expect_says(text, {"ranks did not come to barrier", "within 1 s", "and waits in barrier",
                     from_here ? "'elsewhere'" : "'here'"});
}

TEST(Transport, ASilentRankIsSaidToBeSilent) {
  const auto outcomes = run_with(0.5, [](Communicator& c) {
    if (c.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(4000));
      c.check();
    }
    c.barrier("here");
  });
  const std::string text = one_text(outcomes, OTR_E_TIMEOUT, 1);
  expect_says(
      text, {"1 of 3 ranks did not come to barrier 'here'", "rank 1 (process ", "does not answer"});
  EXPECT_EQ(outcomes[1].status, OTR_E_TIMEOUT) << "told when it comes: " << outcomes[1].text;
}

// A rank that does something else hears of a failure where it asks, without an operation of its
// own.
TEST(Transport, ACheckHearsOfAFailureWithoutAWait) {
  const auto outcomes = run_with(20, [](Communicator& c) {
    if (c.rank() == 0) c.abort("enough");
    for (int i = 0; i < 1000; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
      c.check();
    }
  });
  EXPECT_EQ(one_text(outcomes, OTR_E_ABORTED), "rank 0 aborted the job: enough");
}

TEST(Transport, DifferentCallsAreAnErrorOnAll) {
  const auto outcomes = run_with(20, [](Communicator& c) {
    if (c.rank() == 2) {
      std::byte one{};
      c.broadcast({&one, 1}, 0, "weights");
    } else {
      c.barrier("weights");
    }
  });
  expect_says(one_text(outcomes, OTR_E_MISMATCH),
              {"rank 0 calls barrier 'weights'", "rank 2 calls broadcast 'weights' of 1 bytes"});
}

TEST(Transport, ACancelEndsAWaitHere) {
  const auto outcomes = run_with(20, [](Communicator& c) {
    const auto copy = c.duplicate("copy");
    if (c.rank() != 0) {
      copy->barrier("later");
      return;
    }
    std::thread([&copy] {
      std::this_thread::sleep_for(milliseconds(100));
      copy->cancel();
    }).join();
    copy->barrier("later");
  });
  EXPECT_EQ(outcomes[0].status, OTR_E_ABORTED);
  expect_says(outcomes[0].text, {"'copy' was cancelled on rank 0"});
  for (const size_t r : {1U, 2U})
    EXPECT_EQ(outcomes[r].status, OTR_E_PEER_DEAD) << outcomes[r].text;
}

}  // namespace
}  // namespace outrigger::comm::test

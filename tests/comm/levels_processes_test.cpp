// SPDX-License-Identifier: Apache-2.0
// Two levels of processes that die, and of the caller's functions between hosts.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/comm/hierarchical.h"
#include "tests/comm/levels.h"

namespace outrigger::comm::test {
namespace {

std::unique_ptr<Communicator> two_levels(Communicator& c) {
  return make_hierarchical(c, *split(c, c.rank() / 2, c.rank()), *split(c, c.rank() % 2, c.rank()));
}

// Where a process dies.
struct Where {
  const char* name;
  std::function<void(Communicator&, bool dies)> body;
};
void PrintTo(const Where& where, std::ostream* out) { *out << where.name; }

void sum_for_ever(Communicator& c) {
  Sums sums(c);
  for (;;) sums.reduce(c);
}

const Where kWhere[] = {
    {"while_it_is_made",
     [](Communicator& c, bool dies) {
       const auto host = split(c, c.rank() / 2, c.rank()),
                  across = split(c, c.rank() % 2, c.rank());
       if (dies) die();
       sum_for_ever(*make_hierarchical(c, *host, *across));
     }},
    {"between_sums",
     [](Communicator& c, bool dies) {
       const auto both = two_levels(c);
       Sums sums(*both);
       for (int i = 0; i < 20; i++) sums.reduce(*both);
       if (dies) die();
       sum_for_ever(*both);
     }},
    {"amid_sums",
     [](Communicator& c, bool dies) {
       const auto both = two_levels(c);
       if (dies) die_in(std::chrono::milliseconds(20));
       sum_for_ever(*both);
     }},
    {"amid_duplicates",
     [](Communicator& c, bool dies) {
       const auto both = two_levels(c);
       if (dies) die_in(std::chrono::milliseconds(20));
       for (;;) static_cast<void>(both->duplicate("copy"));
     }},
    {"in_another_object",
     [](Communicator& c, bool dies) {
       const auto both = two_levels(c);
       const auto other = both->duplicate("other");
       both->barrier("together");
       if (dies) die();
       try {
         sum_for_ever(*other);
       } catch (const Error&) {
         sum_for_ever(*both);  // which has the same dead rank
       }
     }},
};

class LevelsDeath : public testing::TestWithParam<Where> {};
INSTANTIATE_TEST_SUITE_P(Places, LevelsDeath, testing::ValuesIn(kWhere),
                         [](const auto& info) { return info.param.name; });

TEST_P(LevelsDeath, IsNamedByAllSurvivorsAtOnce) {
  for (const int32_t victim : {0, 3, 5}) {
    SCOPED_TRACE(victim);
    const auto outcomes =
        run({Provider::shm, 6}, [&](Communicator& c) { GetParam().body(c, c.rank() == victim); });
    EXPECT_EQ(outcomes[static_cast<size_t>(victim)].status, kKilled);
    one_text(outcomes, OTR_E_PEER_DEAD, victim);
    for (size_t r = 0; r < outcomes.size(); r++) {
      if (static_cast<int32_t>(r) == victim) continue;
      EXPECT_LT(outcomes[r].ended_at - board().moment, 2 * kSoon) << "rank " << r;
    }
  }
}

// ---- The caller's functions between hosts -------------------------------------------------------

class LevelsCustom : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Goes, LevelsCustom, testing::Values(0, 1, 4, 5));

// What all have but this rank, and those whose function failed because it was gone.
void expect_told(const std::vector<Outcome>& outcomes, int32_t goes) {
  std::string text;
  for (size_t r = 0; r < outcomes.size(); r++) {
    if (static_cast<int32_t>(r) == goes || outcomes[r].status == OTR_E_HOST) continue;
    EXPECT_NE(outcomes[r].status, OTR_OK) << "rank " << r;
    if (text.empty()) text = outcomes[r].text;
    EXPECT_EQ(outcomes[r].text, text) << "rank " << r;
  }
  EXPECT_FALSE(text.empty());
}

TEST_P(LevelsCustom, ARankThatLeavesEndsEveryWait) {
  const double start = now();
  const auto outcomes = run({Provider::hierarchical, 6}, [](Communicator& c) {
    Sums sums(c);
    for (int i = 0; i < 3; i++) sums.reduce(c);
    if (c.rank() == GetParam()) return;
    for (int i = 0; i < 10; i++) sums.reduce(c);
  });
  expect_told(outcomes, GetParam());
  EXPECT_LT(now() - start, 5);
}

// Who waits in the caller's functions hears of it by their abort.
TEST_P(LevelsCustom, AFailureOnAHostReachesWhoWaitsBetweenHosts) {
  const double start = now();
  const auto outcomes = run({Provider::hierarchical, 6}, [](Communicator& c) {
    Sums sums(c);
    sums.reduce(c);
    const bool differs = c.rank() == GetParam();
    for (int i = 0; i < 10; i++) sums.reduce(c, differs ? "other" : "grads");
  });
  expect_told(outcomes, -1);
  EXPECT_LT(now() - start, 5);
}

TEST_P(LevelsCustom, AnAbortEndsAll) {
  const double start = now();
  const auto outcomes = run({Provider::hierarchical, 6}, [](Communicator& c) {
    Sums sums(c);
    for (int i = 0; i < 100; i++) {
      sums.reduce(c);
      if (i == 3 && c.rank() == GetParam()) c.abort("out of coffee");
    }
  });
  expect_told(outcomes, -1);
  EXPECT_LT(now() - start, 5);
}

}  // namespace
}  // namespace outrigger::comm::test

// SPDX-License-Identifier: Apache-2.0
// Failures in a mesh: every rank of every group hears of it, by one text that names a rank by its
// number among all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/mesh.h"
#include "tests/comm/levels.h"

namespace outrigger::comm::test {
namespace {

constexpr int32_t kWorld = 6, kShard = 3;
struct Place {
  Provider provider;
  int32_t goes;  // this rank
  bool divided;
};

class MeshFailure : public testing::TestWithParam<Place> {
 protected:
  [[nodiscard]] static int32_t goes() { return GetParam().goes; }
  [[nodiscard]] static std::unique_ptr<Communicator> make(Communicator& c) {
    return make_mesh(c, kShard, GetParam().divided);
  }
  [[nodiscard]] static Ranks ranks(double timeout) {
    return {GetParam().provider, kWorld, timeout};
  }
  static void expect_named(const std::string& text) {
    EXPECT_EQ(text.find(outrigger::format_text("rank {} of all, ", goes())), 0U) << text;
  }
};
INSTANTIATE_TEST_SUITE_P(Goes, MeshFailure, testing::ValuesIn([] {
                           std::vector<Place> all;
                           for (const Provider provider : {Provider::threads, Provider::shm}) {
                             for (const int32_t rank : {0, 1, 4, 5})
                               for (const bool divided : {false, true})
                                 all.push_back({provider, rank, divided});
                           }
                           return all;
                         }()),
                         [](const auto& info) {
                           return outrigger::format_text(
                               "{}_{}{}", info.param.provider == Provider::shm ? "shm" : "threads",
                               info.param.goes, info.param.divided ? "_divided" : "");
                         });

// What its ranks have, in each slice.
void gather(Group& group, const char* label = "acquire") {
  std::array<int32_t, kWorld> values{};
  values.at(static_cast<size_t>(group.slice())) = group.slice() + 1;
  std::vector<Part> parts;
  for (int32_t s = 0; s < group.slices(); ++s) {
    parts.push_back({s, std::as_writable_bytes(std::span(&values.at(static_cast<size_t>(s)), 1))});
  }
  group.all_gather_parts(parts, label);
  for (int32_t s = 0; s < group.slices(); ++s) {
    require(values.at(static_cast<size_t>(s)) == s + 1, "gathered");
  }
}

TEST_P(MeshFailure, ARankThatLeavesEndsEverySum) {
  const auto outcomes = run(ranks(20), [](Communicator& c) {
    const auto mesh = make(c);
    Sums sums(*mesh);
    for (int i = 0; i < 3; i++) sums.reduce(*mesh);
    if (c.rank() != goes()) {
      for (int i = 0; i < 10; i++) sums.reduce(*mesh);
    }
  });
  expect_named(one_text(outcomes, OTR_E_PEER_DEAD, goes()));
}

TEST_P(MeshFailure, ARankThatLeavesEndsEveryGather) {
  const auto outcomes = run(ranks(20), [](Communicator& c) {
    const auto mesh = make(c);
    gather(*mesh);
    mesh->barrier("in step");
    if (c.rank() == goes()) return;
    gather(*mesh);  // the ranks of other groups go on
    mesh->barrier("in step");
  });
  const std::string text = one_text(outcomes, OTR_E_PEER_DEAD, goes());
  EXPECT_EQ(text.find(outrigger::format_text("rank {} ", goes())), 0U) << text;
}

TEST_P(MeshFailure, OneThatSilentlyStaysAwayFromASum) {
  const auto outcomes = run(ranks(0.5), [](Communicator& c) {
    const auto mesh = make(c);
    Sums sums(*mesh);
    sums.reduce(*mesh);
    if (c.rank() == goes()) std::this_thread::sleep_for(std::chrono::milliseconds(1900));
    sums.reduce(*mesh);
  });
  expect_named(one_text(outcomes, OTR_E_TIMEOUT));
}

// Ranks of other groups meet all the others next, those that wait for the silent one, too, and came
// a little later than they themselves.
TEST_P(MeshFailure, OneThatSilentlyStaysAwayFromAGather) {
  const auto outcomes = run(ranks(0.5), [](Communicator& c) {
    const auto mesh = make(c);
    gather(*mesh);
    mesh->barrier("in step");
    const bool near = c.rank() / kShard == goes() / kShard;
    const int late = c.rank() == goes() ? 1900 : near ? 200 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(late));
    try {
      gather(*mesh);
      mesh->barrier("in step");
    } catch (const Error& error) {
      require(c.rank() == goes() || error.culprit() == goes(), error.what());
      throw;
    }
  });
  one_text(outcomes, OTR_E_TIMEOUT);
}

TEST_P(MeshFailure, ADifferentCallInAGather) {
  const auto outcomes = run(ranks(20), [](Communicator& c) {
    const auto mesh = make(c);
    gather(*mesh);
    mesh->barrier("in step");
    auto [group, replicas] = mesh->publishing("publish");  // of divided ones
    Group& gathers = replicas ? *replicas : *mesh;
    gather(gathers, c.rank() == goes() ? "other" : "acquire");
    gathers.barrier("in step");
  });
  const std::string text = one_text(outcomes, OTR_E_MISMATCH);
  // The first of those that gather is not named.
  const int32_t next = GetParam().divided ? kShard : 1;
  const bool is_first = GetParam().divided ? goes() < kShard : goes() % kShard == 0;
  const int32_t other = is_first ? goes() + next : goes();
  EXPECT_EQ(text.find(outrigger::format_text("rank {} of all, ", other)), 0U) << text;
}

TEST_P(MeshFailure, AnAbortOfTheMesh) {
  const auto outcomes = run(ranks(20), [](Communicator& c) {
    const auto mesh = make(c);
    gather(*mesh);
    mesh->barrier("in step");
    if (c.rank() == goes()) {
      mesh->abort("out of coffee");
      mesh->check();
    }
    gather(*mesh);
    mesh->barrier("in step");
  });
  const std::string text = one_text(outcomes, OTR_E_ABORTED);
  expect_says(text, {outrigger::format_text("rank {} ", goes()), "out of coffee"});
}

// What the mesh was made of is aborted, by the host: nobody waits for the deadline.
TEST_P(MeshFailure, AnAbortOfTheWhole) {
  const auto outcomes = run(ranks(20), [](Communicator& c) {
    const auto mesh = make(c);
    gather(*mesh);
    mesh->barrier("in step");
    if (c.rank() == goes()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      board().moment = now();
      c.abort("out of coffee");
      // The others wait on for this object, which is still there.
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      mesh->check();
    }
    gather(*mesh);
    mesh->barrier("in step");
  });
  expect_says(one_text(outcomes, OTR_E_ABORTED),
              {outrigger::format_text("rank {} ", goes()), "out of coffee"});
  for (size_t r = 0; r < outcomes.size(); ++r) {
    if (static_cast<int32_t>(r) == goes()) continue;
    EXPECT_LT(outcomes[r].ended_at - board().moment, kSoon) << r;
  }
}

// Of the caller's functions: the group's own ranks know of it by themselves.
TEST(MeshCustom, ADifferentCallNamesTheRankByItsNumber) {
  const auto outcomes = run({Provider::custom, kWorld, 20}, [](Communicator& c) {
    const auto mesh = make_mesh(c, kShard, false);
    gather(*mesh);
    mesh->barrier("in step");
    gather(*mesh, c.rank() == 4 ? "other" : "acquire");
    mesh->barrier("in step");
  });
  for (size_t r = 3; r < outcomes.size(); ++r) {
    EXPECT_EQ(outcomes[r].status, OTR_E_MISMATCH) << outcomes[r].text;
    EXPECT_EQ(outcomes[r].text.find("rank 4 of all, "), 0U) << outcomes[r].text;
  }
}

class MeshDeath : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Divided, MeshDeath, testing::Bool());

TEST_P(MeshDeath, IsNamedByAllSurvivorsAtOnce) {
  constexpr std::array<int, 4> kMoments{0, 2, 4, 8};  // of which some are while it is made
  for (const int32_t victim : {0, 2, 4, 5}) {
    for (const int place : {0, 1, 2, 3, 4, 5, 6}) {
      const int where = std::min(place, 3);
      const auto moment = static_cast<size_t>(place - where);
      SCOPED_TRACE(outrigger::format_text("{} {}", victim, place));
      const auto outcomes = run({Provider::shm, kWorld, 20}, [&](Communicator& c) {
        const bool dies = c.rank() == victim;
        if (where == 0 && dies) die();
        if (where == 3 && dies) die_in(std::chrono::milliseconds(kMoments.at(moment)));
        const auto mesh = make_mesh(c, kShard, GetParam());
        Sums sums(*mesh);
        sums.reduce(*mesh);
        mesh->barrier("in step");
        if (where == 1 && dies) die();
        if (where == 1) {
          gather(*mesh);
          mesh->barrier("in step");
        }
        if (where == 2 && dies) die();
        for (;;) sums.reduce(*mesh);
      });
      EXPECT_EQ(outcomes[static_cast<size_t>(victim)].status, kKilled);
      for (size_t r = 0; r < outcomes.size(); r++) {
        if (static_cast<int32_t>(r) == victim) continue;
        EXPECT_LT(outcomes[r].ended_at - board().moment, 2 * kSoon) << "rank " << r;
      }
      const auto text = one_text(outcomes, OTR_E_PEER_DEAD, victim);
      EXPECT_EQ(text.find(outrigger::format_text("rank {} ", victim)), 0U) << text;
    }
  }
}

}  // namespace
}  // namespace outrigger::comm::test

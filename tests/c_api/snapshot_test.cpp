// SPDX-License-Identifier: Apache-2.0
// Snapshots in memory: the way back to a moment, and of a rank whose memory is lost.
#include <array>
#include <string>
#include <vector>

#include "../sanitizers.h"
#include "checkpoints.h"
#include "snapshots.h"

namespace {

using namespace otr_test;

int32_t take(const Engine& engine, const Snapshot& into, int32_t replicas = 0,
             const std::string& bytes = "") {
  otr_snapshot_options options;
  EXPECT_OK(otr_snapshot_options_init(&options, sizeof options));
  const otr_part part{"host", bytes.data(), bytes.size()};
  options.replicas = replicas;
  options.parts = &part;
  options.part_count = 1;
  return otr_engine_snapshot(engine.get(), into.get(), &options);
}

int32_t restore(const Engine& engine, const std::vector<const Snapshot*>& given) {
  std::vector<otr_snapshot*> all;
  for (const Snapshot* one : given) all.push_back(one->get());
  return otr_engine_restore(engine.get(), all.data(), static_cast<int64_t>(all.size()));
}

std::string last_error() { return otr_last_error_message(); }

const std::vector<Job> kJobs{{1, 0},
                             {2, 0},
                             {3, 1},
                             {4, 2},
                             {2, 3, "", R"(, "share_parameters": false)"},
                             {7, 3},
                             {4, 2, "", R"(, "mesh": {"shard": 2})"},
                             {4, 3, "", R"(, "mesh": {"shard": 2, "states": "all"})"}};

// Back to a moment, twice, and on from there: every value and every later step has the same bits.
TEST(Snapshots, GoBackInTheSameEngine) {
  for (const Training& kind : kTrainings) {
    for (const Job& job : kJobs) {
      if (job.stage == 0 && !kind.at_stage_0) continue;
      if (!outrigger::test::runs(&kind - kTrainings, &job - kJobs.data())) continue;
      SCOPED_TRACE(std::string(kind.name) + ", " + std::to_string(job.world) + " ranks, stage " +
                   std::to_string(job.stage) + job.own);
      run_ranks(job.world, [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, config(kind, job));
        declare(engine, 1);
        for (int64_t i = 0; i < 3; ++i) step(engine, i);
        const Snapshot snapshot;
        ASSERT_OK(take(engine, snapshot, 0, std::string(3, static_cast<char>('a' + rank))));
        const Everything then = everything(engine);
        for (int64_t i = 3; i < 7; ++i) step(engine, i);
        const Everything later = everything(engine);
        ASSERT_NE(then, later);
        for (int again = 0; again < 2; ++again) {
          ASSERT_OK(restore(engine, {&snapshot}));
          EXPECT_EQ(everything(engine), then);
          for (int64_t i = 3; i < 7; ++i) step(engine, i);
          EXPECT_EQ(everything(engine), later);
        }
        EXPECT_EQ(snapshot.part("host"), std::string(3, static_cast<char>('a' + rank)));
        EXPECT_EQ(snapshot.info().micro_steps, 3);
        EXPECT_EQ(snapshot.info().rank, rank);
        EXPECT_OK(otr_engine_finalize(engine.get()));
      });
      if (HasFailure()) return;
    }
  }
}

// The ranks of `lost` begin anew with nothing; all go on in other engines of another group.
void lose_and_go_on(const Training& kind, const Job& job, int32_t replicas,
                    const std::vector<int32_t>& lost) {
  const auto world = static_cast<size_t>(job.world);
  std::vector<Snapshot> snapshots(world);
  std::vector<Everything> then(world), later(world);
  run_ranks(job.world, [&](int32_t rank, otr_comm* comm) {
    const auto r = static_cast<size_t>(rank);
    Engine engine(comm, config(kind, job));
    declare(engine, 1);
    for (int64_t i = 0; i < 2; ++i) step(engine, i);
    ASSERT_OK(take(engine, snapshots[r], replicas, "rank " + std::to_string(rank)));
    EXPECT_GE(snapshots[r].info().copies, replicas + 1);
    then[r] = everything(engine);
    for (int64_t i = 2; i < 4; ++i) step(engine, i);
    later[r] = everything(engine);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
  for (const int32_t rank : lost) snapshots[static_cast<size_t>(rank)].lose();
  run_ranks(job.world, [&](int32_t rank, otr_comm* comm) {
    const auto r = static_cast<size_t>(rank);
    Engine engine(comm, config(kind, job));
    declare(engine, -0.25);
    ASSERT_OK(restore(engine, {&snapshots[r]})) << last_error();
    EXPECT_EQ(everything(engine), then[r]);
    EXPECT_EQ(snapshots[r].part("host"), "rank " + std::to_string(rank));
    for (int64_t i = 2; i < 4; ++i) step(engine, i);
    EXPECT_EQ(everything(engine), later[r]);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

TEST(Snapshots, ALostRankComesBackByWayOfAnother) {
  struct Case {
    size_t training;
    Job job;
    int32_t replicas;
    std::vector<int32_t> lost;
  };
  const std::vector<Case> cases{
      {0, {2, 0}, 1, {1}},
      {1, {2, 2}, 1, {0}},
      {2, {3, 1}, 1, {1}},
      {3, {4, 3, "", R"(, "share_parameters": false)"}, 1, {0, 3}},
      {4, {7, 2}, 2, {2, 6}},
      {5, {4, 1}, 3, {0, 1, 3}},
      {7, {4, 2, "", R"(, "mesh": {"shard": 2})"}, 1, {2}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(kTrainings[c.training].name) + ", " + std::to_string(c.job.world));
    lose_and_go_on(kTrainings[c.training], c.job, c.replicas, c.lost);
    if (HasFailure()) return;
  }
}

// Of two that are filled in turn, the latest that is whole everywhere counts, whatever each rank
// has.
TEST(Snapshots, TheLatestThatAllHaveCounts) {
  std::array<std::array<Snapshot, 2>, 2> all;
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    auto& [older, newer] = all.at(static_cast<size_t>(rank));
    Engine engine(comm, config(kTrainings[1], {2, 1}));
    declare(engine, 1);
    step(engine, 0);
    ASSERT_OK(take(engine, older));
    const Everything first = everything(engine);
    step(engine, 1);
    ASSERT_OK(take(engine, newer));
    const Everything second = everything(engine);
    step(engine, 2);
    ASSERT_OK(restore(engine, {&newer, &older}));
    EXPECT_EQ(everything(engine), second);
    if (rank == 1) newer.lose();
    ASSERT_OK(restore(engine, {&older, &newer}));
    EXPECT_EQ(everything(engine), first);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

TEST(Snapshots, TheMemoryIsUsedAgain) {
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config(kTrainings[0], {2, 1}));
    declare(engine, 1);
    const Snapshot snapshot;
    EXPECT_EQ(snapshot.info().bytes, 0);
    ASSERT_OK(take(engine, snapshot, 1));
    const int64_t bytes = snapshot.info().bytes;
    EXPECT_GT(bytes, 3 * 4 * 2707);  // this rank's half and the other one's
    for (int i = 0; i < 3; ++i) {
      step(engine, i);
      ASSERT_OK(take(engine, snapshot, 1));
      EXPECT_EQ(snapshot.info().bytes, bytes);
    }
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

void expect_refused(int32_t status, int32_t expected, const std::string& words) {
  EXPECT_EQ(status, expected);
  EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
}

TEST(Snapshots, WrongUseNamesTheWayOut) {
  std::array<Snapshot, 3> kept;
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Snapshot& own = kept.at(static_cast<size_t>(rank));
    Engine engine(comm, config(kTrainings[0], {2, 2}));
    declare(engine, 1);
    step(engine, 0);
    expect_refused(restore(engine, {&own}), OTR_E_NOT_FOUND, "no rank has a snapshot");
    expect_refused(restore(engine, {&own, &own}), OTR_E_ARGUMENT, "snapshot 1 is given twice");
    expect_refused(restore(engine, {&own, &own, &own, &own, &own}), OTR_E_ARGUMENT,
                   "5 snapshots; at most 4");
    expect_refused(take(engine, own, 2), OTR_E_ARGUMENT,
                   "replicas = 2; of 2 ranks, legal is 0 to 1");
    expect_refused(take(engine, own, -1), OTR_E_ARGUMENT, "replicas = -1");
    expect_refused(take(engine, own, rank), OTR_E_MISMATCH, "other tags or options");
    EXPECT_EQ(own.info().rank, -1);
    EXPECT_EQ(own.part("host"), "(none)");
    ASSERT_OK(take(engine, own, 0));
    if (rank == 1) own.lose();
    const Everything now = everything(engine);
    expect_refused(restore(engine, {&own}), OTR_E_NOT_FOUND, "that of rank 1 is nowhere");
    ASSERT_OK(take(engine, own, 1));
    otr_pass* pass = nullptr;
    ASSERT_OK(otr_pass_begin(engine.get(), nullptr, 0, nullptr, &pass));
    EXPECT_EQ(restore(engine, {&own}), OTR_E_STATE);
    EXPECT_EQ(take(engine, own), OTR_E_STATE);
    ASSERT_OK(otr_pass_end(pass));
    otr_pass_destroy(pass);
    ASSERT_OK(otr_engine_discard(engine.get()));
    EXPECT_EQ(own.part("other"), "(none)");
    EXPECT_EQ(everything(engine), now);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config(kTrainings[0], {3, 2}));
    declare(engine, 1);
    expect_refused(restore(engine, {&kept.at(static_cast<size_t>(rank))}), OTR_E_NOT_FOUND,
                   "of 2 ranks, and this group has 3");
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config(kTrainings[3], {2, 2}));
    declare(engine, 1);
    const Everything before = everything(engine);
    expect_refused(restore(engine, {&kept.at(static_cast<size_t>(rank))}), OTR_E_MISMATCH,
                   "other parameters, formats or shards");
    EXPECT_EQ(everything(engine), before);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

}  // namespace

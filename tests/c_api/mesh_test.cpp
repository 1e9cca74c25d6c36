// SPDX-License-Identifier: Apache-2.0
// Groups of ranks that each have the whole training: what ranks of a group keep, what goes over all
// of them, who is named. (Bits over shapes, stages and formats: Matrix.Mesh.)
#include <algorithm>
#include <cmath>
#include <mutex>

#include "memory.h"

namespace {

using namespace otr_test;

constexpr int32_t kWorld = 6;
constexpr int64_t kCount = 1500;

std::string config(int32_t shard, int32_t stage, const std::string& more = "") {
  return R"({"outrigger": {"mesh": {"shard": )" + std::to_string(shard) +
         R"(}}, "zero_optimization": {"reduce_bucket_size": 512, "stage": )" +
         std::to_string(stage) + "}" + more + "}";
}

void declare(Engine& engine) {
  engine.add("a", {kCount}, dyadic(kCount, 1));
  engine.add("b", {40, 30}, dyadic(1200, 2));
  otr_param_options frozen = param_options();
  frozen.trainable = 0;
  engine.add("f", {77}, dyadic(77, 3), &frozen);
  engine.commit();
}

otr_step_report step(const Engine& engine, int32_t rank, int32_t number) {
  engine.pass({{0, dyadic(kCount, rank + number)}, {1, dyadic(1200, rank * 3 + number)}});
  return engine.step();
}

TEST(Mesh, TheEstimateIsTheLedger) {
  const std::string more[] = {"", R"(, "bf16": {"enabled": true})",
                              R"(, "optimizer": {"type": "Muon"})"};
  for (const int32_t shard : {1, 2, 3, 6}) {
    for (const int32_t stage : {0, 1, 2, 3}) {
      for (const std::string& own : more) {
        run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
          Engine engine(all, config(shard, stage, own));
          engine.add("a", {kCount}, Values(kCount, 0));
          engine.add("b", {40, 30}, Values(1200, 0));
          commit_as_estimated(engine, options_for(kWorld, rank), config(shard, stage, own));
        });
      }
    }
  }
}

// A rank keeps a part for its place in the group; ranks of the same place keep the same.
TEST(Mesh, AGroupCutsWhatTheStageCuts) {
  for (const int32_t stage : {1, 3}) {
    run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
      Engine engine(all, config(3, stage));
      declare(engine);
      int64_t first = -1, count = 0, total = 0;
      for (const int64_t id : {0, 1}) {
        ASSERT_OK(otr_engine_local_range(engine.get(), id, &first, &count));
        total += count;
      }
      EXPECT_LE(total, 4 * 256) << "of 2700 elements, at most four leaves";
      std::vector<int64_t> firsts(kWorld);
      ASSERT_OK(otr_engine_local_range(engine.get(), 0, &first, &count));
      ASSERT_OK(otr_comm_all_gather(all, &first, sizeof first, firsts.data()));
      for (size_t r = 0; r < 3; ++r) EXPECT_EQ(firsts[r], firsts[r + 3]);
      EXPECT_LT(firsts[0], firsts[1]);
      // Collective calls of all groups at a time.
      step(engine, rank, 0);
      const Tensor given({kCount}, dyadic(kCount, 9));
      EXPECT_OK(otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_MASTER, &given));
      EXPECT_EQ(engine.read(0), dyadic(kCount, 9));
      const int64_t ids[] = {2, 0};
      otr_tensor out[2];
      ASSERT_OK(otr_engine_acquire(engine.get(), ids, 2, nullptr, out));
      EXPECT_EQ(values_of(out[0]), dyadic(77, 3));
      EXPECT_EQ(values_of(out[1]), dyadic(kCount, 9));
      ASSERT_OK(otr_engine_release(engine.get(), ids, 2, nullptr));
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
}

// Nothing of the report counts twice, of the step or after a gradient was replaced.
TEST(Mesh, ReportsAreThoseOfOneGroup) {
  for (const char* more : {"", R"(, "optimizer": {"type": "Lamb"})"}) {
    for (const int32_t stage : {0, 1, 2, 3}) {
      std::vector<otr_step_report> reports[2];
      std::vector<Values> values[2];
      for (const int32_t shard : {2, 6}) {
        std::mutex mutex;
        run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
          Engine engine(all, config(shard, stage, more));
          declare(engine);
          std::vector<otr_step_report> mine{step(engine, rank, 0)};
          engine.pass({{0, dyadic(kCount, rank)}, {1, dyadic(1200, rank)}});
          otr_step_report reduced = OTR_STEP_REPORT_INIT;
          ASSERT_OK(otr_engine_reduce(engine.get(), &reduced));
          mine.push_back(reduced);
          const Tensor gradient({kCount}, dyadic(kCount, 4));
          ASSERT_OK(otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_GRAD, &gradient));
          mine.push_back(engine.step());
          const auto all_values = engine.everything();
          EXPECT_OK(otr_engine_finalize(engine.get()));
          const std::lock_guard lock(mutex);
          const size_t i = shard == 2 ? 0 : 1;
          if (rank == 4) reports[i] = mine;
          values[i] = all_values;
        });
      }
      ASSERT_EQ(reports[0].size(), reports[1].size());
      for (size_t i = 0; i < reports[0].size(); ++i) {
        EXPECT_EQ(reports[0][i].grad_norm, reports[1][i].grad_norm) << stage << more;
        EXPECT_EQ(reports[0][i].clip_coefficient, reports[1][i].clip_coefficient);
        EXPECT_EQ(reports[0][i].updates, reports[1][i].updates) << stage << more;
        EXPECT_EQ(reports[0][i].vanished, reports[1][i].vanished);
      }
      EXPECT_EQ(values[0], values[1]) << "sums of dyadic numbers are exact in any order";
    }
  }
}

TEST(Mesh, NamesWhoseGradientIsNotFinite) {
  for (const int32_t culprit : {0, 2, 3, 5}) {
    run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
      Engine engine(all, config(3, 2));
      declare(engine);
      Values bad = dyadic(1200, 1);
      if (rank == culprit) bad[static_cast<size_t>(200 * culprit + 7)] = HUGE_VAL;
      engine.pass({{0, dyadic(kCount, 1)}, {1, bad}});
      const otr_step_report report = engine.step();
      EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
      EXPECT_EQ(report.nonfinite_param, 1);
      EXPECT_EQ(report.nonfinite_rank, culprit);
      EXPECT_EQ(report.nonfinite_count, 1);
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
}

// Each group's sum is finite, and their sum is not: no rank is to blame.
TEST(Mesh, AnOverflowBetweenGroupsNamesTheParameter) {
  run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
    Engine engine(all, config(3, 2));
    declare(engine);
    Values large = dyadic(1200, 1);
    if (rank == 1 || rank == 5) large[777] = 3e38;
    engine.pass({{0, dyadic(kCount, 1)}, {1, large}});
    const otr_step_report report = engine.step();
    EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
    EXPECT_EQ(report.nonfinite_param, 1);
    EXPECT_EQ(report.nonfinite_rank, -1);
    EXPECT_EQ(report.nonfinite_count, 1);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

// One that goes ends the engine of all ranks, with its number among all of them.
TEST(Mesh, ARankThatGoesIsNamedByItsNumber) {
  for (const int32_t stage : {1, 2, 3}) {
    std::vector<std::string> texts(kWorld);
    run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
      Engine engine(all, config(3, stage));
      declare(engine);
      step(engine, rank, 0);
      if (rank == 4) {
        engine.reset();
      } else {
        const Tensor gradient({kCount}, dyadic(kCount, 1));
        otr_pass* pass = nullptr;
        int32_t status = otr_pass_begin(engine.get(), nullptr, 0, nullptr, &pass);
        const Owned<otr_pass> owner(pass);
        if (status == OTR_OK) status = otr_pass_add_grad(pass, 0, &gradient, nullptr);
        if (status == OTR_OK) status = otr_pass_end(pass);
        if (status == OTR_OK) status = otr_engine_step(engine.get(), nullptr);
        EXPECT_EQ(status, OTR_E_PEER_DEAD) << otr_last_error_message();
        EXPECT_NE(std::string(otr_last_error_message()).find("rank 4"), std::string::npos)
            << otr_last_error_message();
      }
      EXPECT_OK(otr_comm_barrier(all)) << "the job goes on";
    });
  }
}

TEST(Mesh, AProgressSaysHowManyGroupsWereSummed) {
  run_ranks(4, [](int32_t rank, otr_comm* all) {
    std::string progress;
    for (const int32_t shard : {2, 4}) {
      Engine engine(all, config(shard, 1));
      declare(engine);
      if (shard == 2) step(engine, rank, 0);
      size_t size = 0;
      ASSERT_OK(otr_engine_get_progress(engine.get(), nullptr, &size));
      std::string text(size, '\0');
      ASSERT_OK(otr_engine_get_progress(engine.get(), text.data(), &size));
      EXPECT_NE(text.find(shard == 2 ? R"("groups":2)" : R"("groups":1)"), std::string::npos)
          << text;
      if (shard == 2) {
        progress = text;
      } else {
        EXPECT_OK(otr_engine_set_progress(engine.get(), progress.c_str()));
      }
      EXPECT_OK(otr_engine_finalize(engine.get()));
    }
  });
}

// ---- Wrong use ----------------------------------------------------------------------------------

TEST(Mesh, GroupsThatDoNotFitAreRefused) {
  run_ranks(4, [](int32_t, otr_comm* all) {
    otr_engine* engine = nullptr;
    const auto refused = [&](const std::string& json,
                             std::initializer_list<std::string_view> parts) {
      EXPECT_TRUE(failed(OTR_E_CONFIG, otr_engine_create(all, json.c_str(), &engine), parts))
          << json;
    };
    refused(config(3, 1), {"outrigger.mesh.shard = 3", "4 ranks", "divisor"});
    refused(config(8, 1), {"outrigger.mesh.shard = 8", "4 ranks"});
    refused(R"({"zero_optimization": {"mics_shard_size": 3}})", {"mics_shard_size = 3", "4 ranks"});
    refused(R"({"zero_optimization": {"mics_shard_size": 0}})", {"mics_shard_size = 0", "-1"});
    refused(R"({"zero_optimization": {"mics_shard_size": 2}, "outrigger": {"mesh": {"shard": 4}}})",
            {"mics_shard_size = 2", "outrigger.mesh.shard"});
  });
  // A job that is tried alone keeps its configuration, and can be planned.
  Solo solo(config(8, 3));
  solo.engine.add("w", {100}, Values(100, 1));
  otr_estimate_options options;
  ASSERT_OK(otr_estimate_options_init(&options, sizeof options));
  size_t count = 0;
  options.world_size = 64;
  EXPECT_OK(otr_engine_estimate(solo.engine.get(), &options, nullptr, &count));
  options.world_size = 12;
  EXPECT_FAILS(OTR_E_CONFIG, otr_engine_estimate(solo.engine.get(), &options, nullptr, &count),
               "mesh.shard", "8", "12 ranks");
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Groups of ranks that each have the whole training, or the parameters: what ranks of a group keep,
// what goes over all of them, who is named. (Bits over shapes, stages and formats: Matrix.Mesh.)
#include <algorithm>
#include <cmath>
#include <mutex>

#include "memory.h"

namespace {

using namespace otr_test;

constexpr int32_t kWorld = 6;
constexpr int64_t kCount = 1500;

constexpr const char* kStates[] = {"group", "all"};  // over which ranks they are cut

std::string config(int32_t shard, int32_t stage, const std::string& more = "",
                   const std::string& states = "group", bool share = true) {
  return R"({"outrigger": {"share_parameters": )" + std::string(share ? "true" : "false") +
         R"(, "mesh": {"shard": )" + std::to_string(shard) + R"(, "states": ")" + states +
         R"("}}, "zero_optimization": {"reduce_bucket_size": 512, "stage": )" +
         std::to_string(stage) + "}" + more + "}";
}

std::string hpz(int32_t ranks, const std::string& mesh = "", int32_t stage = 3) {
  return R"({"zero_optimization": {"reduce_bucket_size": 512, "stage": )" + std::to_string(stage) +
         R"(, "zero_hpz_partition_size": )" + std::to_string(ranks) +
         R"(}, "outrigger": {"mesh": {)" + mesh + "}}}";
}

void declare(Engine& engine) {
  engine.add("a", {kCount}, dyadic(kCount, 1));
  engine.add("b", {40, 30}, dyadic(1200, 2));
  otr_param_options frozen = param_options();
  frozen.trainable = 0;
  engine.add("f", {77}, dyadic(77, 3), &frozen);
  engine.commit();
}

std::string progress_of(const Engine& engine) {
  size_t size = 0;
  EXPECT_OK(otr_engine_get_progress(engine.get(), nullptr, &size));
  std::string text(size, '\0');
  EXPECT_OK(otr_engine_get_progress(engine.get(), text.data(), &size));
  return text;
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
        for (const char* states : kStates) {
          for (const bool share : {true, false}) {
            const std::string json = config(shard, stage, own, states, share);
            run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
              Engine engine(all, json);
              engine.add("a", {kCount}, Values(kCount, 0));
              engine.add("b", {40, 30}, Values(1200, 0));
              commit_as_estimated(engine, options_for(kWorld, rank), json);
            });
          }
        }
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

// Ranks that share a copy of the published parameters are charged for it once, all together.
TEST(Mesh, AGroupsCopyIsChargedOnce) {
  for (const char* states : kStates) {
    run_ranks(kWorld, [&](int32_t, otr_comm* all) {
      Engine engine(all, config(2, 3, "", states));
      declare(engine);
      const auto entries = ledger(engine.get());
      const auto published = std::ranges::find_if(entries, [](const auto& e) {
        return std::string_view(e.purpose) == "published parameters";
      });
      ASSERT_NE(published, entries.end());
      std::vector<int64_t> each(kWorld);
      ASSERT_OK(otr_comm_all_gather(all, &published->resident_bytes, sizeof each[0], each.data()));
      // Buckets of "b" and of "a", padded to slices of whole leaves; "f" with its padding.
      const int64_t slices = std::string_view(states) == "all" ? kWorld : 2;
      const auto padded = [&](int64_t count) {
        return (count + slices * 256 - 1) / (slices * 256) * slices * 256;
      };
      const int64_t bytes = 4 * (padded(kCount) + padded(1200) + 256);
      for (const size_t r : {0, 2, 4}) EXPECT_EQ(each[r] + each[r + 1], bytes) << states;
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
}

// What a rank shows of parameters is its group's cut, of which it makes a part.
TEST(Mesh, StatesAreCutOverAllRanks) {
  for (const bool share : {true, false}) {
    run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
      Engine engine(all, config(2, 3, "", "all", share));
      declare(engine);
      std::vector<int64_t> ranges(kWorld * 2);
      int64_t mine[2];
      ASSERT_OK(otr_engine_local_range(engine.get(), 0, &mine[0], &mine[1]));
      ASSERT_OK(otr_comm_all_gather(all, mine, sizeof mine, ranges.data()));
      // Of each group the first ranks have the first half, a third of it each.
      int64_t next = 0;
      for (const size_t r : {0, 2, 4, 1, 3, 5}) {
        if (ranges[2 * r + 1] > 0) {
          EXPECT_EQ(ranges[2 * r], next) << r;
        }
        next += ranges[2 * r + 1];
      }
      EXPECT_EQ(next, kCount);
      const auto shown = [&](int64_t id) {
        otr_tensor out;
        EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &out));
        Values values = values_of(out);
        EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
        return values;
      };
      EXPECT_EQ(shown(0), dyadic(kCount, 1)) << "first values";
      EXPECT_EQ(shown(2), dyadic(77, 3)) << "frozen";
      step(engine, rank, 0);
      EXPECT_EQ(shown(0), engine.read(0));
      EXPECT_NE(shown(0), dyadic(kCount, 1));

      const Tensor given({kCount}, dyadic(kCount, 9));
      ASSERT_OK(otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_MASTER, &given));
      EXPECT_EQ(shown(0), dyadic(kCount, 9));
      ASSERT_OK(otr_comm_barrier(all));  // what ranks share, nobody reads any more
      // Local writes are published with the next weight that is written.
      Values part(static_cast<size_t>(mine[1]), 0.25F);
      const Tensor local({mine[1]}, part);
      ASSERT_OK(otr_engine_local_write(engine.get(), 0, OTR_VALUE_MASTER, &local));
      const Tensor other({40, 30}, dyadic(1200, 5));
      ASSERT_OK(otr_engine_parameter_write(engine.get(), 1, OTR_VALUE_MASTER, &other));
      EXPECT_EQ(shown(0), Values(kCount, 0.25F));
      EXPECT_EQ(shown(1), dyadic(1200, 5));
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
}

TEST(Mesh, FirstValuesThatEveryRankGives) {
  for (const char* states : kStates) {
    for (const bool share : {true, false}) {
      run_ranks(kWorld, [&](int32_t, otr_comm* all) {
        Engine engine(all, config(3, 3, "", states, share));
        int64_t shape = kCount, id = -1;
        otr_tensor none;
        ASSERT_OK(otr_tensor_init(nullptr, "float32", 1, &shape, &none));
        ASSERT_OK(otr_engine_add_parameter(engine.get(), "a", &none, nullptr, &id));
        engine.commit();
        const Tensor given({kCount}, dyadic(kCount, 6));
        ASSERT_OK(otr_engine_set_initial(engine.get(), &id, 1, &given));
        otr_tensor out;
        ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &out));
        EXPECT_EQ(values_of(out), dyadic(kCount, 6)) << states << share;
        EXPECT_OK(otr_engine_finalize(engine.get()));
      });
    }
  }
}

// Nothing of the report counts twice, of the step or after a gradient was replaced.
TEST(Mesh, ReportsAreThoseOfOneGroup) {
  for (const char* more : {"", R"(, "optimizer": {"type": "Lamb"})"}) {
    for (const int32_t stage : {0, 1, 2, 3}) {
      std::vector<otr_step_report> reports[3];
      std::vector<Values> values[3];
      for (const size_t i : {0U, 1U, 2U}) {
        const int32_t shard = i == 1 ? 6 : 2;
        std::mutex mutex;
        run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
          Engine engine(all, config(shard, stage, more, kStates[i == 2 ? 1 : 0]));
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
          if (rank == 4) reports[i] = mine;
          values[i] = all_values;
        });
      }
      for (const size_t other : {1U, 2U}) {
        ASSERT_EQ(reports[0].size(), reports[other].size());
        for (size_t i = 0; i < reports[0].size(); ++i) {
          EXPECT_EQ(reports[0][i].grad_norm, reports[other][i].grad_norm) << stage << more;
          EXPECT_EQ(reports[0][i].clip_coefficient, reports[other][i].clip_coefficient);
          EXPECT_EQ(reports[0][i].updates, reports[other][i].updates) << stage << more;
          EXPECT_EQ(reports[0][i].vanished, reports[other][i].vanished);
        }
        EXPECT_EQ(values[0], values[other]) << "sums of dyadic numbers are exact in any order";
      }
    }
  }
}

TEST(Mesh, NamesWhoseGradientIsNotFinite) {
  for (const int32_t culprit : {0, 2, 3, 5, 10, 12, 13, 15}) {
    run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
      Engine engine(all, config(3, 2, "", kStates[culprit / 10]));
      declare(engine);
      Values bad = dyadic(1200, 1);
      if (rank == culprit % 10) bad[static_cast<size_t>(200 * rank + 7)] = HUGE_VAL;
      engine.pass({{0, dyadic(kCount, 1)}, {1, bad}});
      const otr_step_report report = engine.step();
      EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
      EXPECT_EQ(report.nonfinite_param, 1);
      EXPECT_EQ(report.nonfinite_rank, culprit % 10);
      EXPECT_EQ(report.nonfinite_count, 1);
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
}

// Each group's sum is finite, and their sum is not: no rank is to blame.
TEST(Mesh, AnOverflowBetweenGroupsNamesTheParameter) {
  for (const char* states : kStates) {
    run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
      Engine engine(all, config(3, 2, "", states));
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
}

// One that goes ends the engine of all ranks, with its number among all of them.
TEST(Mesh, ARankThatGoesIsNamedByItsNumber) {
  for (const int32_t kind : {1, 2, 3, 11, 12, 13}) {
    run_ranks(kWorld, [&](int32_t rank, otr_comm* all) {
      Engine engine(all, config(3, kind % 10, "", kStates[kind / 10]));
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
      const std::string text = progress_of(engine);
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

// DeepSpeed's name of it; below stage 3 there is nothing to cut, as there.
TEST(Mesh, HpzIsParametersOverAGroupAtStage3) {
  for (const int32_t stage : {2, 3}) {
    run_ranks(4, [&](int32_t, otr_comm* all) {
      Engine engine(all, hpz(2, "", stage));
      declare(engine);
      const std::string groups = stage == 3 ? R"("groups":2)" : R"("groups":1)";
      EXPECT_NE(progress_of(engine).find(groups), std::string::npos);
      int64_t first = -1, count = 0;
      ASSERT_OK(otr_engine_local_range(engine.get(), 0, &first, &count));
      EXPECT_LE(count, 512) << "of 1500 elements, a quarter in leaves";
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
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
    refused(hpz(3), {"zero_hpz_partition_size = 3", "4 ranks"});
    refused(hpz(2, R"("shard": 4)"), {"zero_hpz_partition_size = 2", "outrigger.mesh.shard"});
    refused(hpz(2, R"("states": "group")"), {"zero_hpz_partition_size = 2", "mesh.states"});
    refused(R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2,
                "zero_hpz_partition_size": 2}})",
            {"zero_hpz_partition_size = 2", "mics_shard_size"});
    refused(R"({"zero_optimization": {"mics_shard_size": 2},
                "outrigger": {"mesh": {"states": "all"}}})",
            {"mics_shard_size = 2", "outrigger.mesh.states"});
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

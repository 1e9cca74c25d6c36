// SPDX-License-Identifier: Apache-2.0
// Windows that the host updates itself (optimizer.type "Host"), or drops.
#include <algorithm>
#include <cmath>

#include "support.h"

namespace {

using namespace otr_test;

constexpr int64_t kCount = 1000;
constexpr float kRate = 0.5F;

// config_of's, with the host's optimizer.
std::string host_config(const Kind& kind, const std::string& extra = "") {
  std::string text = config_of(kind, 1, extra);
  const std::string own = R"({"type": "AdamW", "params": {"lr": 0.125}})";
  text.replace(text.find(own), own.size(), R"({"type": "Host", "params": {"lr": 0.125}})");
  return text;
}

std::vector<Kind> kinds_without_states() {
  std::vector<Kind> kinds;
  std::ranges::copy_if(kKinds, std::back_inserter(kinds), [](const Kind& kind) {
    return std::string_view(kind.precision) != "bf16_states";
  });
  return kinds;
}

void declare(Engine& engine) {
  for (const char* name : {"a", "b", "unused"}) engine.add(name, {kCount}, dyadic(kCount, 1));
  engine.commit();
}

otr_step_report reduce(const Engine& engine) {
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_OK(otr_engine_reduce(engine.get(), &report));
  return report;
}

// -1: the call failed.
int32_t has_grad(const Engine& engine, int64_t id) {
  int32_t has = -1;
  EXPECT_OK(otr_engine_has_grad(engine.get(), id, &has));
  return has;
}

Tensor local(const Engine& engine, int64_t id, int32_t value) {
  int64_t first = 0, count = 0;
  EXPECT_OK(otr_engine_local_range(engine.get(), id, &first, &count));
  Tensor mine = Tensor::filled({count}, -1);
  EXPECT_OK(otr_engine_local_read(engine.get(), id, value, &mine));
  return mine;
}

float descend(double weight, double grad, double clip) {
  return static_cast<float>(weight) - kRate * static_cast<float>(clip * grad);
}

// Gradient descent of this rank's elements.
void descend(const Engine& engine, double clip) {
  for (int64_t id = 0; id < 3; ++id) {
    if (has_grad(engine, id) == 0) continue;
    Tensor weight = local(engine, id, OTR_VALUE_MASTER);
    const Values before = weight.values(), grad = local(engine, id, OTR_VALUE_GRAD).values();
    for (size_t i = 0; i < before.size(); ++i) {
      set_value(weight.get(), static_cast<int64_t>(i), descend(before[i], grad[i], clip));
    }
    EXPECT_OK(otr_engine_local_write(engine.get(), id, OTR_VALUE_MASTER, &weight));
  }
}

class HostUpdate : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, HostUpdate, testing::ValuesIn(kinds_without_states()), name_of);

TEST_P(HostUpdate, IsWhatTheStepPublishes) {
  for (const int32_t world : {1, 3}) {
    run_ranks(world, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, host_config(GetParam(), R"("gradient_clipping": 8)"));
      declare(engine);
      const bool low_master = std::string_view(GetParam().precision) == "fp16_master";
      for (int step = 1; step <= 2; ++step) {
        const Values before[] = {engine.read(0), engine.read(1)}, unused = engine.read(2);
        engine.pass({{1, Values(kCount, step)}, {0, Values(kCount, rank == 0 ? step * world : 0)}});
        const auto report = reduce(engine);
        EXPECT_LT(report.clip_coefficient, 1);
        EXPECT_EQ(has_grad(engine, 0), 1);
        EXPECT_EQ(has_grad(engine, 2), 0);
        descend(engine, report.clip_coefficient);
        const auto stepped = engine.step();
        EXPECT_EQ(stepped.outcome, OTR_STEP_APPLIED);
        EXPECT_EQ(stepped.applied_steps, step);
        EXPECT_EQ(stepped.updates, 0) << "the host knows";
        EXPECT_EQ(stepped.lr, 0.125);
        for (int64_t id = 0; id < 2; ++id) {
          Values expected;
          for (const double w : before[id]) {
            const float next = descend(w, step, report.clip_coefficient);
            expected.push_back(low_master ? round_to("float16", next) : next);
          }
          EXPECT_EQ(engine.read(id), expected);
          for (double& w : expected) w = round_to(compute_dtype(GetParam()), w);
          EXPECT_EQ(engine.read(id, OTR_VALUE_PUBLISHED), expected);
          otr_tensor shown = {};
          ASSERT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &shown));
          EXPECT_EQ(values_of(shown), expected);
          EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
        }
        EXPECT_EQ(engine.read(2), unused);
      }
    });
  }
}

TEST_P(HostUpdate, KeepsNoMoments) {
  Solo solo(host_config(GetParam()));
  declare(solo.engine);
  const Tensor out = Tensor::filled({kCount}, 0);
  for (const int32_t moment : {OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_read(solo.engine.get(), 0, moment, &out),
                 "\"a\"", "Host");
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_write(solo.engine.get(), 0, moment, &out),
                 "\"a\"", "Host");
  }
  size_t entries = 0;
  ASSERT_OK(otr_engine_memory(solo.engine.get(), nullptr, &entries));
  std::vector<otr_memory_entry> memory(
      entries, otr_memory_entry{sizeof(otr_memory_entry), 0, nullptr, 0, 0});
  ASSERT_OK(otr_engine_memory(solo.engine.get(), memory.data(), &entries));
  for (const otr_memory_entry& entry : memory) {
    if (std::string_view(entry.purpose).starts_with("exp_avg")) {
      EXPECT_EQ(entry.resident_bytes, 0) << entry.purpose;
    }
  }
}

TEST_P(HostUpdate, MayWriteWholeParameters) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, host_config(GetParam()));
    declare(engine);
    engine.pass({{0, Values(kCount, 1)}});
    reduce(engine);
    const Tensor next = Tensor::filled({kCount}, rank == 0 ? 4 : -4);
    EXPECT_OK(otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_MASTER, &next));
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(engine.read(0, OTR_VALUE_PUBLISHED), Values(kCount, 4));
  });
}

TEST_P(HostUpdate, IsRefusedInASkippedWindow) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, host_config(GetParam()));
    declare(engine);
    const Values before = engine.read(0);
    Values grad(kCount, 1);
    if (rank == 1) grad[7] = INFINITY;
    engine.pass({{0, grad}});
    EXPECT_EQ(reduce(engine).reason, OTR_SKIP_NONFINITE);
    const Tensor weight = local(engine, 0, OTR_VALUE_MASTER);
    EXPECT_FAILS(OTR_E_STATE, otr_engine_local_write(engine.get(), 0, OTR_VALUE_MASTER, &weight),
                 "skipped", "otr_engine_step");
    EXPECT_EQ(engine.step().outcome, OTR_STEP_SKIPPED);
    EXPECT_EQ(engine.read(0), before);
  });
}

TEST_P(HostUpdate, HasItsPlaceInTheWindow) {
  run_ranks(3, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, host_config(GetParam()));
    engine.add("a", {2}, {1, 2});  // one rank has it
    engine.commit();
    int32_t has = 0;
    EXPECT_FAILS(OTR_E_STATE, otr_engine_has_grad(engine.get(), 0, &has), "otr_engine_reduce");
    engine.pass({{0, {1, 1}}});
    Tensor weight = local(engine, 0, OTR_VALUE_MASTER);
    EXPECT_FAILS(OTR_E_STATE, otr_engine_local_write(engine.get(), 0, OTR_VALUE_MASTER, &weight),
                 "old value");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_step(engine.get(), nullptr), "Host", "otr_engine_reduce");
    reduce(engine);
    EXPECT_EQ(reduce(engine).reason, OTR_SKIP_NONE) << "nothing is written yet";
    EXPECT_OK(otr_engine_local_write(engine.get(), 0, OTR_VALUE_MASTER, &weight));
    // On all ranks, also those that had nothing to write, and the engine goes on.
    EXPECT_FAILS(OTR_E_STATE, otr_engine_reduce(engine.get(), nullptr), "written",
                 "otr_engine_step");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_discard(engine.get()), "written", "otr_engine_step");
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(engine.read(0), (Values{1, 2}));
  });
}

TEST(HostOptimizer, HasTheRateAsItsOnlyHyperparameter) {
  Solo solo(host_config(kKinds[0]));
  double rate = 0;
  EXPECT_OK(otr_engine_set_group_value(solo.engine.get(), nullptr, "lr", 0.25));
  EXPECT_OK(otr_engine_get_group_value(solo.engine.get(), nullptr, "lr", &rate));
  EXPECT_EQ(rate, 0.25);
  EXPECT_FAILS(OTR_E_NOT_FOUND,
               otr_engine_set_group_value(solo.engine.get(), nullptr, "beta1", 0.5), "beta1",
               "Host");
}

TEST(HostOptimizer, IsRefusedWhereItsStepCannotComeFirst) {
  Solo solo(host_config(kKinds[0]));
  declare(solo.engine);
  solo.engine.pass({{0, Values(kCount, 1)}});
  otr_engine* const engines[] = {solo.engine.get()};
  EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_step_many(engines, 1, nullptr, nullptr), "engine 0", "Host");
  otr_optimizer* optimizer = nullptr;
  EXPECT_FAILS(OTR_E_CONFIG,
               otr_optimizer_create(solo.context.get(), R"({"type": "Host"})", &optimizer), "Host",
               "AdamW");
}

class Discard : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Discard, testing::ValuesIn(kKinds), name_of);

TEST_P(Discard, LeavesAllAsIfThePassesHadNotBeen) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    const std::string config = config_of(GetParam(), 2);
    Engine plain(comm, config), engine(comm, config);
    declare(plain);
    declare(engine);
    const auto window = [&](const Engine& e, double grad) {
      otr_step_report report = OTR_STEP_REPORT_INIT;
      for (int step = 0; step < 2; ++step) {
        e.pass({{0, Values(kCount, grad * rank)}, {1, Values(kCount, 1)}});
        report = e.step();
      }
      return report;
    };
    window(plain, 1);
    const auto expected = window(plain, 2);

    // Nothing yet, with and without a pass, after a step, after otr_engine_reduce.
    EXPECT_OK(otr_engine_discard(engine.get()));
    engine.pass({{2, Values(kCount, INFINITY)}});
    EXPECT_OK(otr_engine_discard(engine.get()));
    window(engine, 1);
    engine.pass({{0, Values(kCount, 77)}});
    EXPECT_EQ(engine.step().outcome, OTR_STEP_ACCUMULATED);
    EXPECT_OK(otr_engine_discard(engine.get()));
    engine.pass({{2, Values(kCount, 77)}});
    engine.step();
    engine.pass({{1, Values(kCount, 77)}});
    reduce(engine);
    EXPECT_OK(otr_engine_discard(engine.get()));
    const auto report = window(engine, 2);
    EXPECT_EQ(report.applied_steps, 2);
    EXPECT_EQ(report.skipped_steps, 0);
    EXPECT_EQ(report.grad_norm, expected.grad_norm);
    EXPECT_EQ(engine.everything(), plain.everything());
  });
}

TEST_P(Discard, DropsWhatAnAbandonedPassLeft) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    declare(engine);
    {
      const auto pass = engine.begin();
      EXPECT_FAILS(OTR_E_STATE, otr_engine_discard(engine.get()), "pass is open");
      Engine::add(pass, 0, {kCount}, Values(kCount, 77));
      EXPECT_OK(rank == 1 ? otr_pass_abandon(pass.get()) : otr_pass_end(pass.get()));
    }
    EXPECT_OK(otr_engine_discard(engine.get()));
    engine.pass({{0, Values(kCount, 1)}});
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
  });
}

TEST(DiscardMismatch, NamesTheRankThatMadeOtherPasses) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(kKinds[0]));
    declare(engine);
    if (rank == 1) engine.pass({{0, Values(kCount, 1)}});
    EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_discard(engine.get()), "rank 1 made 1",
                 "rank 0 made 0");
  });
}

}  // namespace

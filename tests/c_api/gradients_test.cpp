// SPDX-License-Identifier: Apache-2.0
// Gradients before the step: summed by otr_engine_reduce, read, replaced, and judged again.
#include <cmath>

#include "support.h"

namespace {

using namespace otr_test;

class Gradients : public testing::TestWithParam<Kind> {
 protected:
  static constexpr int64_t kCount = 1000;
  static void declare(Engine& engine) {
    engine.add("a", {kCount}, dyadic(kCount, 1));
    engine.add("b", {kCount}, dyadic(kCount, 2));
    engine.commit();
  }
  static otr_step_report reduce(const Engine& engine) {
    otr_step_report report = OTR_STEP_REPORT_INIT;
    EXPECT_OK(otr_engine_reduce(engine.get(), &report));
    return report;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Gradients, testing::ValuesIn(kKinds), name_of);

TEST_P(Gradients, AreReadUnscaledAndReplaced) {
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam(), 1, R"("gradient_clipping": 8)"));
    declare(engine);
    engine.pass({{1, Values(kCount, rank)}, {0, Values(kCount, 1)}});
    const auto report = reduce(engine);
    EXPECT_EQ(report.outcome, OTR_STEP_REDUCED);
    EXPECT_NEAR(report.grad_norm, std::sqrt(2.0 * kCount), 1e-5);
    EXPECT_EQ(report.micro_steps, 0);
    for (const double g : engine.read(1, OTR_VALUE_GRAD)) EXPECT_NEAR(g, 1, 1e-6);
    const auto before = engine.everything();

    // Rank 0's value becomes everybody's.
    const Tensor next = Tensor::filled({kCount}, rank == 0 ? 0.25 : 77);
    EXPECT_OK(otr_engine_parameter_write(engine.get(), 1, OTR_VALUE_GRAD, &next));
    const Values replaced = engine.read(1, OTR_VALUE_GRAD);
    for (const double g : replaced) EXPECT_NEAR(g, 0.25, 1e-3);
    const double norm = std::sqrt(kCount * (1 + 0.0625));
    EXPECT_NEAR(reduce(engine).grad_norm, norm, 1e-2) << "asked again";
    EXPECT_EQ(engine.everything(), before);
    const auto stepped = engine.step();
    EXPECT_EQ(stepped.outcome, OTR_STEP_APPLIED);
    EXPECT_NEAR(stepped.grad_norm, norm, 1e-2);
    EXPECT_NEAR(stepped.clip_coefficient, 8 / norm, 1e-3);
    EXPECT_NE(engine.everything(), before);
    const Tensor out = Tensor::filled({kCount}, 0);
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_read(engine.get(), 1, OTR_VALUE_GRAD, &out),
                 "\"b\"", "otr_engine_reduce");
  });
}

TEST_P(Gradients, AreReplacedLocally) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    declare(engine);
    engine.pass({{1, Values(kCount, 1)}, {0, Values(kCount, 1)}});
    reduce(engine);
    int64_t first = -1, count = -1, total = 0;
    for (int64_t id = 0; id < 2; ++id) {
      ASSERT_OK(otr_engine_local_range(engine.get(), id, &first, &count));
      total += count;
      Tensor mine = Tensor::filled({count}, -1);
      ASSERT_OK(otr_engine_local_read(engine.get(), id, OTR_VALUE_GRAD, &mine));
      EXPECT_EQ(mine.values(), Values(static_cast<size_t>(count), 1));
      const Tensor doubled = Tensor::filled({count}, 2);
      EXPECT_OK(otr_engine_local_write(engine.get(), id, OTR_VALUE_GRAD, &doubled));
      const Tensor wrong = Tensor::filled({count + 1}, 2);
      EXPECT_FAILS(OTR_E_SHAPE, otr_engine_local_write(engine.get(), id, OTR_VALUE_GRAD, &wrong),
                   std::to_string(count + 1), std::to_string(count));
    }
    EXPECT_TRUE(GetParam().stage > 0 || total == 2 * kCount);
    EXPECT_EQ(engine.step().grad_norm, 2 * std::sqrt(2.0 * kCount)) << "on every rank " << rank;
  });
}

TEST_P(Gradients, AnInfinityThatIsWrittenSkipsAndOneThatIsRemovedDoesNot) {
  Solo solo(config_of(GetParam()));
  declare(solo.engine);
  Values bad(kCount, 1);
  bad[17] = INFINITY;
  const Tensor poisoned({kCount}, bad), clean = Tensor::filled({kCount}, 1);
  solo.engine.pass({{1, bad}, {0, Values(kCount, 1)}});
  EXPECT_EQ(reduce(solo.engine).reason, OTR_SKIP_NONFINITE);
  EXPECT_OK(otr_engine_parameter_write(solo.engine.get(), 1, OTR_VALUE_GRAD, &clean));
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);

  solo.engine.pass({{1, Values(kCount, 1)}, {0, Values(kCount, 1)}});
  EXPECT_EQ(reduce(solo.engine).reason, OTR_SKIP_NONE);
  EXPECT_OK(otr_engine_parameter_write(solo.engine.get(), 1, OTR_VALUE_GRAD, &poisoned));
  const auto report = solo.engine.step();
  EXPECT_EQ(report.reason, OTR_SKIP_NONFINITE);
  EXPECT_EQ(report.nonfinite_param, 1);
}

TEST_P(Gradients, OfAParameterThatHadNoneCountOnceWritten) {
  Solo solo(config_of(GetParam()));
  declare(solo.engine);
  solo.engine.pass({{0, Values(kCount, 1)}});
  reduce(solo.engine);
  EXPECT_EQ(solo.engine.read(1, OTR_VALUE_GRAD), Values(kCount, 0));
  const Tensor given = Tensor::filled({kCount}, 1);
  EXPECT_OK(otr_engine_parameter_write(solo.engine.get(), 1, OTR_VALUE_GRAD, &given));
  EXPECT_EQ(solo.engine.step().updates, 2 * kCount);
}

TEST_P(Gradients, CloseTheWindow) {
  Solo solo(config_of(GetParam(), 2));
  declare(solo.engine);
  EXPECT_FAILS(OTR_E_STATE, otr_engine_reduce(solo.engine.get(), nullptr), "no backward pass");
  solo.engine.pass({{0, Values(kCount, 1)}});
  EXPECT_FAILS(OTR_E_STATE, otr_engine_reduce(solo.engine.get(), nullptr), "1 of 2");
  solo.engine.step();
  const auto pass = solo.engine.begin();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_reduce(solo.engine.get(), nullptr), "pass is open");
  Engine::end(pass);
  reduce(solo.engine);
  otr_pass* another = nullptr;
  EXPECT_FAILS(OTR_E_STATE, otr_pass_begin(solo.engine.get(), nullptr, 0, nullptr, &another),
               "otr_engine_step");
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
  solo.engine.pass({{0, Values(kCount, 1)}});
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_ACCUMULATED);
}

// ---- States, whole and local
// ----------------------------------------------------------------------

TEST_P(Gradients, StatesAreWrittenToo) {
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    declare(engine);
    const Values values = dyadic(kCount, 9);
    const Tensor given({kCount}, values);
    for (const int32_t value : {OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ, OTR_VALUE_MASTER}) {
      EXPECT_OK(otr_engine_parameter_write(engine.get(), 0, value, &given));
      EXPECT_EQ(engine.read(0, value), values);
    }
    EXPECT_EQ(engine.read(0, OTR_VALUE_PUBLISHED), values);
    EXPECT_FAILS(OTR_E_ARGUMENT,
                 otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_PUBLISHED, &given),
                 "MASTER");
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_parameter_write(engine.get(), 0, 9, &given), "9");
    int64_t first = 0, count = 0;
    ASSERT_OK(otr_engine_local_range(engine.get(), 1, &first, &count));
    Values part;
    for (int64_t i = 0; i < count; ++i) part.push_back(values[static_cast<size_t>(first + i)]);
    const Tensor mine({count}, part);
    EXPECT_OK(otr_engine_local_write(engine.get(), 1, OTR_VALUE_MASTER, &mine));
    EXPECT_OK(otr_engine_local_write(engine.get(), 1, OTR_VALUE_EXP_AVG, &mine));
    EXPECT_OK(otr_comm_barrier(comm));
    EXPECT_EQ(engine.read(1), values);
    EXPECT_EQ(engine.read(1, OTR_VALUE_EXP_AVG), values);
    EXPECT_EQ(engine.read(1, OTR_VALUE_PUBLISHED), values);
    engine.pass({{0, Values(kCount, 1)}});
    EXPECT_FAILS(OTR_E_STATE,
                 otr_engine_parameter_write(engine.get(), 0, OTR_VALUE_EXP_AVG, &given), "step");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_local_write(engine.get(), 1, OTR_VALUE_MASTER, &mine),
                 "step");
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
  });
}

}  // namespace

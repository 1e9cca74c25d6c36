// SPDX-License-Identifier: Apache-2.0
// The step beside the host: otr_engine_step_begin and otr_engine_report.
#include <dirent.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "blocking.h"

namespace {

using namespace otr_test;

otr_step_report begun_step(const Engine& engine) {
  EXPECT_OK(otr_engine_step_begin(engine.get()));
  return engine.report();
}

class Pending : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Pending, testing::ValuesIn(kKinds), name_of);

// The same bits and reports as the step in one call, on ranks that mix both forms.
TEST_P(Pending, IsTheStep) {
  std::vector<Values> values[2];
  std::vector<otr_step_report> reports[2];
  for (const bool begun : {false, true}) {
    run_ranks(2, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, config_of(GetParam(), 2, R"("gradient_clipping": 1)"));
      engine.add("w", {kElements}, dyadic(kElements, 1));
      engine.commit();
      for (int i = 0; i < 6; ++i) {
        Values grad = dyadic(kElements, i + rank);
        if (i == 3 && rank == 1) grad[7] = HUGE_VAL;
        engine.pass({{0, grad}});
        const bool beside = begun && (i < 4 || rank == 0);
        const auto report = beside ? begun_step(engine) : engine.step();
        if (rank == 0) reports[begun ? 1 : 0].push_back(report);
      }
      const auto all = engine.everything();
      if (rank == 0) values[begun ? 1 : 0] = all;
    });
  }
  EXPECT_EQ(values[0], values[1]);
  ASSERT_EQ(reports[0].size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    const auto &one = reports[0][i], &other = reports[1][i];
    EXPECT_EQ(one.outcome, other.outcome);
    EXPECT_EQ(one.reason, other.reason);
    EXPECT_EQ(one.nonfinite_rank, other.nonfinite_rank);
    EXPECT_EQ(one.applied_steps, other.applied_steps);
    EXPECT_EQ(one.grad_norm, other.grad_norm);
    EXPECT_EQ(one.updates, other.updates);
  }
}

TEST_P(Pending, ReturnsAtOnceAndAnswersWhatItMay) {
  std::atomic<bool> goes_on{false};
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    engine.add("w", {kElements}, Values(kElements, 1));
    engine.commit();
    engine.pass({{0, Values(kElements, 1)}});
    if (rank == 1) {
      wait_for(goes_on);
      EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
      return;
    }
    otr_engine* e = engine.get();
    auto begin = Clock::now();
    EXPECT_OK(otr_engine_step_begin(e));
    otr_step_report report = engine.report(0);
    EXPECT_LT(seconds_since(begin), 1);
    EXPECT_EQ(report.outcome, OTR_STEP_PENDING);
    EXPECT_EQ(report.applied_steps, 0);
    begin = Clock::now();
    EXPECT_EQ(engine.report(0.1).outcome, OTR_STEP_PENDING);
    EXPECT_GE(seconds_since(begin), 0.099);

    const int64_t id = 0;
    const Tensor value = Tensor::filled({kElements}, 1);
    otr_pass* pass = nullptr;
    double number = 0;
    int32_t flag = 0;
    EXPECT_FAILS(OTR_E_STATE, otr_engine_step_begin(e), "pending", "otr_engine_report");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_step(e, nullptr), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_reduce(e, nullptr), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_step_many(&e, 1, nullptr, nullptr), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_finalize(e), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_commit(e), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_pass_begin(e, nullptr, 0, nullptr, &pass), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_parameter_read(e, 0, 0, &value), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_parameter_write(e, 0, 0, &value), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_set_initial(e, &id, 1, &value), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_local_read(e, 0, 0, &value), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_local_write(e, 0, 0, &value), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_set_trainable(e, 0, 0), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_set_boundary(e, OTR_BOUNDARY_NO), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_set_group_value(e, nullptr, "lr", 1), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_get_boundary(e, &flag), "pending");
    EXPECT_FAILS(OTR_E_STATE, otr_engine_get_loss_scale(e, &number), "pending");
    EXPECT_OK(otr_engine_check(e));
    int64_t count = 0;
    size_t size = 0;
    EXPECT_OK(otr_engine_live_children(e, &count));
    EXPECT_OK(otr_engine_parameter_count(e, &count));
    EXPECT_OK(otr_engine_parameter_id(e, "w", &count));
    EXPECT_OK(otr_engine_memory(e, nullptr, &size));
    EXPECT_OK(otr_engine_config(e, nullptr, &(size = 0)));
    EXPECT_OK(otr_engine_get_group_value(e, nullptr, "lr", &number));
    EXPECT_EQ(engine.report(0).outcome, OTR_STEP_PENDING);

    goes_on = true;
    report = engine.report();
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(report.applied_steps, 1);
    EXPECT_EQ(engine.report(0).grad_norm, report.grad_norm) << "the same once more";
    EXPECT_OK(otr_engine_get_boundary(e, &flag));
  });
}

TEST_P(Pending, DestroyGivesItUpWithoutWaiting) {
  std::atomic<bool> passed{false}, destroyed{false};
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    engine.add("w", {kElements}, Values(kElements, 1));
    engine.commit();
    if (rank == 1) {
      engine.pass({});
      passed = true;
      wait_for(destroyed);
      EXPECT_FAILS(OTR_E_PEER_DEAD, otr_engine_step(engine.get(), nullptr), "rank 0");
      return;
    }
    engine.pass({{0, Values(kElements, 1)}});
    EXPECT_OK(otr_engine_step_begin(engine.get()));
    wait_for(passed);
    pause(20);
    const auto begin = Clock::now();
    engine.reset();
    EXPECT_LT(seconds_since(begin), 1);
    destroyed = true;
  });
}

TEST_P(Pending, TheStepsErrorComesOutOfTheReport) {
  std::atomic<bool> over{false};
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    engine.add("w", {kElements}, Values(kElements, 1));
    engine.commit();
    if (rank == 1) {
      wait_for(over);
      return;
    }
    engine.pass({{0, Values(kElements, 1)}});
    EXPECT_OK(otr_engine_step_begin(engine.get()));
    EXPECT_OK(otr_engine_abort(engine.get(), "beside a pending step"));
    otr_step_report report = OTR_STEP_REPORT_INIT;
    for (int i = 0; i < 2; ++i) {  // as often as it is asked for
      EXPECT_FAILS(OTR_E_ABORTED, otr_engine_report(engine.get(), -1, &report),
                   "beside a pending step");
    }
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_step_begin(engine.get()), "Destroy");
    over = true;
  });
}

TEST(PendingSteps, WrongUse) {
  Solo solo(config_of(kKinds[1]));
  otr_engine* e = solo.engine.get();
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_FAILS(OTR_E_STATE, otr_engine_report(e, 0, &report), "otr_engine_step_begin");
  EXPECT_FAILS(OTR_E_STATE, otr_engine_step_begin(e), "commit");
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_step_begin(e), "no backward pass");
  EXPECT_FAILS(OTR_E_STATE, otr_engine_report(e, 0, &report), "otr_engine_step_begin");
  {
    const auto pass = solo.engine.begin();
    EXPECT_FAILS(OTR_E_STATE, otr_engine_step_begin(e), "pass is open");
    Engine::end(pass);
  }
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_step_begin(nullptr), "engine");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_report(nullptr, 0, &report), "engine");
  EXPECT_OK(otr_engine_step_begin(e));
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_report(e, 0, nullptr), "report");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_report(e, std::nan(""), &report), "timeout_seconds");
  report.struct_size = 8;
  EXPECT_FAILS(OTR_E_ABI, otr_engine_report(e, 0, &report), "8");
  EXPECT_EQ(solo.engine.report(std::numeric_limits<double>::infinity()).outcome, OTR_STEP_APPLIED);
  EXPECT_OK(otr_engine_finalize(e));
  EXPECT_EQ(solo.engine.report().outcome, OTR_STEP_APPLIED);
  EXPECT_FAILS(OTR_E_STATE, otr_engine_step_begin(e), "finalized");
}

TEST(PendingSteps, TheSmallestLossScaleIsReported) {
  Solo solo(config_of(kKinds[6], 1, R"("fp16": {"enabled": true, "loss_scale": 0,
      "initial_scale_power": 0, "min_loss_scale": 1, "hysteresis": 1})"));
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  solo.engine.pass({{0, {HUGE_VAL, 0}}});
  EXPECT_OK(otr_engine_step_begin(solo.engine.get()));
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_FAILS(OTR_E_LOSS_SCALE, otr_engine_report(solo.engine.get(), -1, &report),
               "min_loss_scale");
  EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
  solo.engine.pass({{0, {1, 0}}});
  EXPECT_EQ(begun_step(solo.engine).outcome, OTR_STEP_APPLIED);
}

size_t threads_now() {
  size_t count = 0;
  DIR* dir = opendir("/proc/self/task");
  while (const dirent* entry = readdir(dir)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(dir);
  return count;
}

TEST(PendingSteps, OneThreadServesAll) {
  Solo solo(config_of(kKinds[0]), 1);
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  const size_t before = threads_now();
  for (int i = 0; i < 20; ++i) {
    solo.engine.pass({{0, {1, 1}}});
    EXPECT_EQ(begun_step(solo.engine).applied_steps, i + 1);
    EXPECT_EQ(threads_now(), before + 1);
  }
}

// The host's rounding mode does not reach the library's thread, and its passes may outlive it all.
TEST(PendingSteps, APassMayOutliveThePendingEngine) {
  Solo solo(config_of(kKinds[4]));
  solo.engine.add("w", {2}, {1, 2});
  solo.engine.commit();
  auto pass = solo.engine.begin();
  Engine::add(pass, 0, {2}, {1, 1});
  Engine::end(pass);
  EXPECT_OK(otr_engine_step_begin(solo.engine.get()));
  solo.engine.reset();
  pass.reset();
}

}  // namespace

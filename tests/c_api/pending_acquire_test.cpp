// SPDX-License-Identifier: Apache-2.0
// A host that acquires parameters while a step is pending, on the CPU: what it sees, and what it is
// told. On a device: device_pending_test.cpp.
#include <atomic>
#include <cmath>
#include <vector>

#include "blocking.h"

namespace {

using namespace otr_test;

class PendingAcquire : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, PendingAcquire, testing::ValuesIn(kKinds), name_of);

// What a step in one call leaves is what an acquire shows behind a step that was begun, whether it
// updates or skips; of the last parameter nobody gives a gradient.
TEST_P(PendingAcquire, ShowsWhatTheStepLeaves) {
  for (const int32_t world : {1, 2}) {
    std::vector<Values> seen[2];
    std::vector<int32_t> outcomes[2];
    for (const bool begun : {false, true}) {
      run_ranks(world, [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, config_of(GetParam(), 1, R"("gradient_clipping": 0.5)"));
        for (const char* name : {"a", "b", "c", "d"}) {
          engine.add(name, {kElements}, dyadic(kElements, name[0]));
        }
        engine.commit();
        for (int i = 0; i < 4; ++i) {
          Values grad = dyadic(kElements, i + rank);
          if (i == 2 && rank == world - 1) grad[7] = HUGE_VAL;
          engine.pass({{0, grad}, {1, dyadic(kElements, 9)}, {2, dyadic(kElements, 3 + rank)}});
          int32_t outcome = -1;
          if (!begun) {
            outcome = engine.step().outcome;
          } else {
            EXPECT_OK(otr_engine_step_begin(engine.get()));
            const int64_t id = 0;
            EXPECT_OK(otr_engine_prefetch(engine.get(), &id, 1, nullptr));
          }
          for (int64_t id = 0; id < 4; ++id) {
            const Values values = use(engine, id);
            if (rank == 0) seen[begun ? 1 : 0].push_back(values);
          }
          if (begun) outcome = engine.report().outcome;
          if (rank == 0) outcomes[begun ? 1 : 0].push_back(outcome);
        }
      });
    }
    EXPECT_EQ(seen[0].size(), 16U);
    EXPECT_EQ(seen[0], seen[1]) << world;
    EXPECT_EQ(outcomes[0], outcomes[1]);
    EXPECT_EQ(outcomes[0].at(2), OTR_STEP_SKIPPED);
    EXPECT_NE(seen[0][0], seen[0][4]);
  }
}

// The host has the first parameter when a small part of the step's time is over. One of many steps
// shows it, however the machine's threads come and go.
TEST(PendingAcquires, ComeBeforeTheStepIsOver) {
  Solo solo(R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, "gradient_clipping": 1})");
  constexpr int64_t kMany = int64_t{1} << 20;
  std::vector<Engine::Gradient> gradients;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    gradients.push_back({solo.engine.add(name, {kMany}, Values(kMany, 1)), Values(kMany, 2)});
  }
  solo.engine.commit();
  int before = 0;
  for (int i = 0; i < 40 && before == 0; ++i) {
    solo.engine.pass(gradients);
    const auto begin = Clock::now();
    EXPECT_OK(otr_engine_step_begin(solo.engine.get()));
    const int64_t id = 0;
    otr_tensor weight;
    ASSERT_OK(otr_engine_acquire(solo.engine.get(), &id, 1, nullptr, &weight));
    const double first = seconds_since(begin);
    const float shown = *static_cast<const float*>(weight.data);
    EXPECT_EQ(solo.engine.report().outcome, OTR_STEP_APPLIED);
    before += first < 0.7 * seconds_since(begin) ? 1 : 0;
    EXPECT_EQ(*static_cast<const float*>(weight.data), shown) << "changed after it was acquired";
    EXPECT_NE(shown, 1);
  }
  EXPECT_GT(before, 0);
}

TEST(PendingAcquires, FailAsTheStepDoes) {
  std::atomic<bool> begun{false};
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(kKinds[2]));
    engine.add("w", {kElements}, Values(kElements, 1));
    engine.commit();
    engine.pass({{0, Values(kElements, 1)}});
    if (rank == 1) {
      wait_for(begun);
      EXPECT_OK(otr_engine_abort(engine.get(), "no more"));
      return;
    }
    EXPECT_OK(otr_engine_step_begin(engine.get()));
    begun = true;
    const int64_t id = 0;
    otr_tensor weight;
    EXPECT_FAILS(OTR_E_ABORTED, otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight),
                 "rank 1", "no more");
    EXPECT_FAILS(OTR_E_ABORTED, otr_engine_prefetch(engine.get(), &id, 1, nullptr), "no more");
    otr_step_report report = OTR_STEP_REPORT_INIT;
    EXPECT_FAILS(OTR_E_ABORTED, otr_engine_report(engine.get(), -1, &report), "no more");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
  });
}

TEST(PendingAcquires, AreCheckedAsAlways) {
  Solo solo(config_of(kKinds[0]));
  solo.engine.add("w", {kElements}, Values(kElements, 1));
  solo.engine.commit();
  solo.engine.pass({{0, Values(kElements, 1)}});
  const int64_t id = 0, none = 7;
  otr_tensor weight;
  EXPECT_OK(otr_engine_acquire(solo.engine.get(), &id, 1, nullptr, &weight));
  EXPECT_OK(otr_engine_step_begin(solo.engine.get()));
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_acquire(solo.engine.get(), &none, 1, nullptr, &weight),
               "7");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_prefetch(solo.engine.get(), &none, 1, nullptr), "7");
  EXPECT_FAILS(OTR_E_STATE, otr_engine_release(solo.engine.get(), &id, 1, nullptr),
               "not acquired");  // the step has ended it
  EXPECT_EQ(solo.engine.report().outcome, OTR_STEP_APPLIED);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Ranks that disagree: OTR_E_MISMATCH on all of them, naming the difference.
#include <future>

#include "support.h"

namespace {

using namespace otr_test;

class Mismatch : public testing::TestWithParam<Kind> {
 protected:
  // Runs `set_up` on each rank's engine, then expects commit to fail alike everywhere.
  void expect_commit(int32_t world, const std::function<void(int32_t, Engine&)>& set_up,
                     std::initializer_list<std::string_view> parts) {
    run_ranks(world, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, config_of(GetParam()));
      set_up(rank, engine);
      EXPECT_TRUE(failed(OTR_E_MISMATCH, otr_engine_commit(engine.get()), parts));
      EXPECT_FAILS(OTR_E_POISONED, otr_engine_commit(engine.get()), "Destroy");
      EXPECT_EQ(otr_engine_check(engine.get()), OTR_E_MISMATCH) << "sticky";
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Mismatch, testing::ValuesIn(kKinds), name_of);

TEST_P(Mismatch, OfNames) {
  expect_commit(3,
                [](int32_t rank, Engine& engine) {
                  engine.add("a", {1}, {1});
                  engine.add(rank == 2 ? "other" : "same", {1}, {1});
                },
                {"rank 0", "rank 2", "\"same\"", "\"other\""});
}

TEST_P(Mismatch, OfShapes) {
  expect_commit(2,
                [](int32_t rank, Engine& engine) {
                  engine.add("w", rank == 0 ? Shape{2, 3} : Shape{3, 2}, Values(6, 1));
                },
                {"rank 0", "rank 1", "[2, 3]", "[3, 2]", "\"w\""});
}

TEST_P(Mismatch, OfTheirNumber) {
  expect_commit(2,
                [](int32_t rank, Engine& engine) {
                  engine.add("w", {1}, {1});
                  if (rank == 1) engine.add("only here", {1}, {1});
                },
                {"rank 0", "rank 1", "\"only here\""});
  expect_commit(2,
                [](int32_t rank, Engine& engine) {
                  if (rank == 0) engine.add("only here", {1}, {1});
                },
                {"rank 0", "rank 1", "\"only here\""});
}

TEST_P(Mismatch, OfOptions) {
  const auto with = [](const std::function<void(otr_param_options&)>& change) {
    return [change](int32_t rank, Engine& engine) {
      auto options = param_options();
      engine.add("a", {2}, {1, 2});
      if (rank == 1) change(options);
      engine.add("w", {2}, {1, 2}, &options);
    };
  };
  expect_commit(2, with([](otr_param_options& o) { o.trainable = 0; }),
                {"rank 1", "\"w\"", "trainable"});
  expect_commit(2, with([](otr_param_options& o) { o.alias_of = 0; }), {"rank 1", "\"w\""});
  expect_commit(2, with([](otr_param_options& o) { o.group = "slow"; }),
                {"rank 1", "\"w\"", "slow"});
  expect_commit(2, with([](otr_param_options& o) { o.contributions = 3; }),
                {"rank 1", "\"w\"", "contributions"});
}

TEST_P(Mismatch, OfConfigurations) {
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(
        comm, config_of(GetParam(), 1,
                        rank == 1 ? R"("gradient_clipping": 0.5)" : R"("gradient_clipping": 2)"));
    engine.add("w", {1}, {1});
    EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_commit(engine.get()), "gradient_clipping", "0.5",
                 "rank 1", "rank 0");
  });
}

TEST_P(Mismatch, OfInitialValuesWhereTheyAreVerified) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    for (const bool differ : {false, true}) {
      Engine engine(comm, config_of(GetParam(), 1, "", R"("initial_values": "verify")"));
      engine.add("a", {2}, {1, 2});
      engine.add("w", {2}, {1, differ && rank == 1 ? 3.0 : 2.0});
      if (differ) {
        EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_commit(engine.get()), "\"w\"", "rank 1");
      } else {
        engine.commit();
      }
    }
  });
}

TEST_P(Mismatch, NoneBetweenZerosAndNothing) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam(), 1, "", R"("initial_values": "verify")"));
    const Values zeros(3000, 0);
    int64_t shape[1] = {3000};
    otr_tensor nothing;
    ASSERT_OK(otr_tensor_init(nullptr, "float32", 1, shape, &nothing));
    int64_t id = -1;
    if (rank == 0) {
      engine.add("w", {3000}, zeros);
    } else {
      ASSERT_OK(otr_engine_add_parameter(engine.get(), "w", &nothing, nullptr, &id));
    }
    engine.commit();
  });
}

TEST_P(Mismatch, OfGroupValues) {
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    engine.add("w", {2}, {1, 2});
    engine.commit();
    if (rank == 2) {
      EXPECT_OK(otr_engine_set_group_value(engine.get(), nullptr, "lr", 0.5));
    }
    engine.pass({{0, {1, 1}}});
    EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_step(engine.get(), nullptr), "rank 2", "rank 0", "lr");
    EXPECT_FAILS(OTR_E_POISONED, otr_engine_step(engine.get(), nullptr), "Destroy");
  });
}

TEST_P(Mismatch, OfTheNumberOfPasses) {
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    engine.add("w", {600}, Values(600, 1));
    engine.commit();
    engine.pass({{0, Values(600, 1)}});
    if (rank == 1) engine.pass({{0, Values(600, 1)}});
    EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_step(engine.get(), nullptr), "rank 1", "2 ", "1 ",
                 "passes");
  });
}

TEST_P(Mismatch, OfTheNumberOfSteps) {
  std::promise<void> stepping;  // rank 0 is about to step
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam(), 2));
    engine.add("w", {600}, Values(600, 1));
    engine.commit();
    engine.pass({});
    EXPECT_EQ(engine.step().outcome, OTR_STEP_ACCUMULATED);
    engine.pass({});
    if (rank == 1) {  // reads where rank 0 steps
      const Tensor out = Tensor::filled({600}, 0);
      const int32_t status = otr_engine_parameter_read(engine.get(), 0, OTR_VALUE_EXP_AVG, &out);
      if (GetParam().stage == 0) {  // a whole copy is here: the read is local, rank 0 is left alone
        stepping.get_future().wait();
        return;
      }
      EXPECT_FAILS(OTR_E_MISMATCH, status, "rank 0", "rank 1");
    } else {
      stepping.set_value();
      const int32_t expected = GetParam().stage == 0 ? OTR_E_PEER_DEAD : OTR_E_MISMATCH;
      EXPECT_FAILS(expected, otr_engine_step(engine.get(), nullptr), "rank 1");
    }
  });
}

}  // namespace

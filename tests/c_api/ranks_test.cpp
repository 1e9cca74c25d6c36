// SPDX-License-Identifier: Apache-2.0
// Engines on several ranks of one process that agree.
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "support.h"

namespace {

using namespace otr_test;

class Ranks : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Ranks, testing::ValuesIn(kKinds), name_of);

const Shape kShapes[5] = {{37, 21}, {2}, {0, 3}, {}, {1000}};

void declare(Engine& engine, int64_t seed) {
  for (int64_t p = 0; p < 5; ++p) {
    engine.add(("p" + std::to_string(p)).c_str(), kShapes[p],
               dyadic(count_of(kShapes[p]), seed + p));
  }
}

TEST_P(Ranks, RankZerosValuesWin) {
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    declare(engine, 10 * rank);
    engine.commit();
    for (int64_t p = 0; p < 5; ++p) {
      EXPECT_EQ(engine.read(p), dyadic(count_of(kShapes[p]), p));
      EXPECT_EQ(engine.read(p, OTR_VALUE_PUBLISHED), dyadic(count_of(kShapes[p]), p));
    }
    const Tensor mine = Tensor::filled({2}, 0.25 * (rank + 1));
    EXPECT_OK(otr_engine_parameter_write(engine.get(), 1, OTR_VALUE_MASTER, &mine));
    EXPECT_EQ(engine.read(1), Values(2, 0.25)) << "from rank 0's tensor";
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

// Gradients of the ranks add; the update is that of one rank with their mean.
TEST_P(Ranks, UpdateWithTheMeanGradient) {
  for (const int32_t world : {2, 3, 4}) {
    const auto gradient = [](int64_t p, int64_t seed) {
      return dyadic(count_of(kShapes[p]), 3 * p + seed);
    };
    std::mutex mutex;
    std::vector<std::vector<Values>> results;
    run_ranks(world, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, config_of(GetParam()));
      declare(engine, 0);
      engine.commit();
      const auto pass = engine.begin();
      for (int64_t p = 5; p-- > 0;) {
        if (p == 3 && rank != 1) continue;  // missing on some ranks: counts as zero there
        if (p == 1) continue;               // missing on all
        Engine::add(pass, p, kShapes[p], gradient(p, rank));
      }
      Engine::end(pass);
      const auto report = engine.step();
      EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
      double squares = 0;
      int64_t nonzero = 0;
      for (int64_t p = 0; p < 5; ++p) {
        for (int64_t i = 0; i < count_of(kShapes[p]); ++i) {
          double sum = 0;
          for (int32_t r = 0; r < world; ++r) {
            if (p != 1 && (p != 3 || r == 1)) sum += gradient(p, r)[static_cast<size_t>(i)];
          }
          squares += sum * sum;
          nonzero += sum != 0 ? 1 : 0;
        }
      }
      EXPECT_NEAR(report.grad_norm, std::sqrt(squares) / world, 1e-15 * squares)
          << "of the mean gradient";
      EXPECT_EQ(report.updates, nonzero) << "over all ranks";
      const auto all = engine.everything();
      const std::lock_guard lock(mutex);
      results.push_back(all);
    });
    for (const auto& result : results) {
      EXPECT_EQ(result, results[0]) << "every rank reads the same";
    }
    EXPECT_EQ(results[0][4 * 1], dyadic(2, 1)) << "no rank had a gradient for p1";
    EXPECT_NE(results[0][4 * 3], dyadic(1, 3));
  }
}

TEST_P(Ranks, ARankWithoutDataEndsAnEmptyPass) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    declare(engine, 0);
    engine.commit();
    if (rank == 0) {
      engine.pass({{4, Values(1000, 2)}});
    } else {
      engine.pass({});
    }
    EXPECT_EQ(engine.step().grad_norm, std::sqrt(1000.0));
  });
}

TEST(QuantisedRanks, NonfiniteNamesRankAndParameter) {
  for (int32_t culprit = 0; culprit < 3; ++culprit) {
    run_ranks(3, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm,
                    R"({"zero_optimization": {"stage": 2, "zero_quantized_gradients": true}})");
      declare(engine, 0);
      engine.commit();
      Values gradient(777, 1);
      if (rank == culprit) gradient[300] = NAN;
      engine.pass({{4, Values(1000, 1)}, {0, gradient}});
      const auto report = engine.step();
      EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
      EXPECT_EQ(report.nonfinite_param, 0);
      EXPECT_EQ(report.nonfinite_rank, culprit);
      EXPECT_EQ(report.nonfinite_count, 256) << "its block";
    });
  }
}

TEST_P(Ranks, NonfiniteNamesRankAndParameter) {
  for (const int32_t world : {2, 3}) {
    for (int32_t culprit = 0; culprit < world; ++culprit) {
      for (int64_t element : {0, 300, 776}) {
        run_ranks(world, [&](int32_t rank, otr_comm* comm) {
          Engine engine(comm, config_of(GetParam()));
          declare(engine, 0);
          engine.commit();
          const auto before = engine.everything();
          Values gradient(777, 1);
          if (rank == culprit) gradient[static_cast<size_t>(element)] = NAN;
          engine.pass({{4, Values(1000, 1)}, {0, gradient}});
          const auto report = engine.step();
          EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
          EXPECT_EQ(report.reason, OTR_SKIP_NONFINITE);
          EXPECT_EQ(report.nonfinite_param, 0);
          EXPECT_EQ(report.nonfinite_rank, culprit);
          EXPECT_EQ(report.nonfinite_count, 1);
          EXPECT_EQ(engine.everything(), before);
        });
      }
    }
  }
}

TEST_P(Ranks, NonfiniteOnSeveralRanksAgreesOnOne) {
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    declare(engine, 0);
    engine.commit();
    Values late(1000, 1), scalar{1};
    if (rank == 1) late[999] = INFINITY;
    if (rank == 2) scalar[0] = NAN;
    engine.pass({{4, late}, {3, scalar}});
    const auto report = engine.step();
    EXPECT_EQ(report.nonfinite_param, 3) << "the lowest id";
    EXPECT_EQ(report.nonfinite_rank, 2);
    EXPECT_EQ(report.nonfinite_count, 2);
  });
}

// Inf of rank 0 and -Inf of rank 1 make a NaN: the first of them is named.
TEST_P(Ranks, OnlyTheSumIsNotFinite) {
  const std::string_view dtype = compute_dtype(GetParam());
  const double most = dtype == "float32" ? 3e38 : dtype == "float16" ? 6e4 : 3.3e38;
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    declare(engine, 0);
    engine.commit();
    engine.pass({{3, {most}}});
    const auto report = engine.step();
    EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
    EXPECT_EQ(report.nonfinite_param, 3);
    EXPECT_EQ(report.nonfinite_rank, -1) << "only the sum was not";
    EXPECT_EQ(report.nonfinite_count, 1);
  });
}

TEST_P(Ranks, AnAbandonedPassOfOneRankDiscardsOnAll) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    declare(engine, 0);
    engine.commit();
    const auto before = engine.everything();
    auto pass = engine.begin();
    Engine::add(pass, 4, {1000}, Values(1000, 1));
    if (rank == 0) Engine::end(pass);
    pass.reset();
    const auto report = engine.step();
    EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
    EXPECT_EQ(report.reason, OTR_SKIP_ABANDONED);
    EXPECT_EQ(engine.everything(), before);
    engine.pass({{4, Values(1000, 1)}});
    EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

// The rank that abandoned had added nothing: what the others added counts.
TEST_P(Ranks, AnAbandonedEmptyPassOfOneRankLeavesNoTrace) {
  std::mutex mutex;
  std::vector<std::vector<Values>> results;
  for (const bool abandon : {false, true}) {
    run_ranks(2, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, config_of(GetParam()));
      declare(engine, 0);
      engine.commit();
      auto pass = engine.begin();
      if (rank == 0) Engine::add(pass, 4, {1000}, Values(1000, 1));
      if (rank == 0 || !abandon) Engine::end(pass);
      pass.reset();
      const auto report = engine.step();
      EXPECT_EQ(report.outcome, OTR_STEP_APPLIED) << "nothing was added to the abandoned pass";
      EXPECT_EQ(report.grad_norm, std::sqrt(1000.0) / 2);
      const auto all = engine.everything();
      const std::lock_guard lock(mutex);
      results.push_back(all);
    });
  }
  for (const auto& result : results) {
    EXPECT_EQ(result, results[0]);
  }
}

TEST_P(Ranks, LateContributionsOfSomeRanks) {
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam(), 2));
    declare(engine, 0);
    engine.commit();
    double sum = 0;
    for (int window = 0; window < 2; ++window) {
      for (int micro = 0; micro < 2; ++micro) {
        const auto pass = engine.begin();
        for (int i = 0; i <= rank; ++i) Engine::add(pass, 4, {1000}, Values(1000, 1 << i));
        Engine::add(pass, 0, {37, 21}, Values(777, 0));
        Engine::end(pass);
        const auto report = engine.step();
        if (micro == 1) sum = report.grad_norm;
      }
      // A window: 2 × (1 + 3 + 7) in each element, a third of it the mean.
      EXPECT_NEAR(sum, std::sqrt(1000.0) * 22 / 3, 1e-12);
    }
  });
}

TEST_P(Ranks, TwoEnginesOfOneCommunicatorDoNotInterleave) {
  run_ranks(2, [&](int32_t, otr_comm* comm) {
    Engine a(comm, config_of(GetParam())), b(comm, config_of(GetParam()));
    declare(a, 0);
    declare(b, 5);
    a.commit();
    b.commit();
    for (int i = 0; i < 3; ++i) {
      const auto pass_a = a.begin();
      const auto pass_b = b.begin();
      Engine::add(pass_a, 4, {1000}, Values(1000, 1));
      Engine::add(pass_b, 0, {37, 21}, Values(777, 1));
      Engine::end(pass_b);
      Engine::end(pass_a);
      EXPECT_EQ(a.step().grad_norm, std::sqrt(1000.0));
      EXPECT_EQ(b.step().grad_norm, std::sqrt(777.0));
      EXPECT_OK(otr_comm_barrier(comm));
    }
  });
}

TEST_P(Ranks, MoreRanksThanElements) {
  run_ranks(5, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    engine.add("tiny", {3}, {1, 2, 3});
    engine.commit();
    engine.pass({{0, {1, 0, 1}}});
    const auto report = engine.step();
    EXPECT_EQ(report.updates, 2);
    EXPECT_EQ(report.grad_norm, std::sqrt(2.0));
    EXPECT_EQ(engine.read(0)[1], 2);
  });
}

TEST_P(Ranks, ASharedBlockIsChargedOnce) {
  std::mutex mutex;
  int64_t sum = 0;
  run_ranks(3, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    engine.add("w", {30000}, Values(30000, 1));
    engine.commit();
    otr_memory_entry entries[64] = {};
    entries[0].struct_size = sizeof entries[0];
    size_t count = 64;
    EXPECT_OK(otr_engine_memory(engine.get(), entries, &count));
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < count; ++i) {
      if (std::string_view(entries[i].purpose) == "published parameters")
        sum += entries[i].resident_bytes;
    }
  });
  const int64_t one = 30000 * (std::string_view(compute_dtype(GetParam())) == "float32" ? 4 : 2);
  const int64_t copies = GetParam().stage == 0 ? 3 : 1;
  EXPECT_GE(sum, copies * one);
  EXPECT_LE(sum, copies * (one + 4 * 3 * 512));
}

// Two ranks with an engine each, whose handles `leave` destroys on rank 1; then `wait` is called on
// rank 0.
struct Pair {
  Owned<otr_comm> comm;
  std::optional<Engine> engine;
  Owned<otr_pass> ended;
};
void leave_while_waiting(const Kind& kind, const std::function<void(Pair&)>& leave,
                         const std::function<int32_t(Pair&)>& wait) {
  const auto context = make_context(1);
  otr_comm_options options;
  ASSERT_OK(otr_comm_options_init(&options, sizeof options));
  options.timeout = 60;
  otr_comm* comms[2];
  ASSERT_OK(otr_comm_create_threads(context.get(), 2, &options, comms));
  std::promise<void> left, ended;  // rank 0 is done, rank 0's pass has ended
  std::thread other([&] {
    Pair one{Owned<otr_comm>(comms[1]), std::nullopt, {}};
    one.engine.emplace(one.comm.get(), config_of(kind));
    declare(*one.engine, 1);
    one.engine->commit();
    one.ended = one.engine->begin();
    Engine::end(one.ended);
    ended.get_future().wait();
    leave(one);
    left.get_future().wait();
  });
  Pair zero{Owned<otr_comm>(comms[0]), std::nullopt, {}};
  zero.engine.emplace(zero.comm.get(), config_of(kind));
  declare(*zero.engine, 1);
  zero.engine->commit();
  zero.ended = zero.engine->begin();
  Engine::end(zero.ended);
  ended.set_value();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(wait(zero), OTR_E_PEER_DEAD);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_NE(std::string_view(otr_last_error_message()).find("rank 1"), std::string_view::npos)
      << otr_last_error_message();
  left.set_value();
  other.join();
}

TEST_P(Ranks, ACommunicatorLeavesThoughItsEngineLives) {
  leave_while_waiting(
      GetParam(), [](Pair& p) { p.comm.reset(); },
      [](Pair& p) { return otr_comm_barrier(p.comm.get()); });
}

TEST_P(Ranks, AnEngineLeavesThoughAnEndedPassLives) {
  leave_while_waiting(
      GetParam(), [](Pair& p) { p.engine.reset(); },
      [](Pair& p) { return otr_engine_step(p.engine->get(), nullptr); });
}

TEST_P(Ranks, EnginesOutliveTheirCommunicator) {
  const auto context = make_context(1);
  otr_comm* comms[2];
  ASSERT_OK(otr_comm_create_threads(context.get(), 2, nullptr, comms));
  std::vector<std::thread> threads;
  for (otr_comm* handle : comms) {
    threads.emplace_back([&, handle] {
      Owned<otr_comm> comm(handle);
      Engine engine(comm.get(), config_of(GetParam()));
      engine.add("w", {1000}, Values(1000, 1));
      engine.commit();
      comm.reset();
      engine.pass({{0, Values(1000, 2)}});
      EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

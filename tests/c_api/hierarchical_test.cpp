// SPDX-License-Identifier: Apache-2.0
// Communicators of two levels: threads stand for hosts, and a custom communicator for what is
// between them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "memory.h"

namespace {

using namespace otr_test;

// The groups of one rank, and the communicator of them.
struct Levels {
  Levels(otr_comm* all, int32_t rank, int32_t each) {
    otr_comm* made = nullptr;
    EXPECT_OK(otr_comm_split(all, rank / each, rank, &made));
    host.reset(made);
    EXPECT_OK(otr_comm_split(all, rank % each, rank, &made));
    across.reset(made);
    EXPECT_OK(otr_comm_create_hierarchical(all, host.get(), across.get(), &made));
    both.reset(made);
    int32_t shares = -1;
    EXPECT_OK(otr_comm_shares_memory(host.get(), &shares));
    EXPECT_EQ(shares, 1);
    EXPECT_OK(otr_comm_shares_memory(both.get(), &shares));
    EXPECT_EQ(shares, 0);
  }
  Owned<otr_comm> host, across, both;
};

struct Shape2 {
  int32_t hosts, each;
};
constexpr Shape2 kShapes[] = {{2, 2}, {3, 2}, {2, 3}, {1, 3}, {3, 1}};

// ---- Bits ---------------------------------------------------------------------------------------

constexpr int64_t kCount = 1500;

// Sums of these depend on the order of additions.
float gradient(int32_t rank, int64_t i, int step) {
  const double size = std::ldexp(1.0 + static_cast<double>((i * 37 + step * 5 + 11) % 101) / 101,
                                 static_cast<int>((i + rank * 7 + step) % 24));
  return static_cast<float>((rank + i) % 2 == 0 ? size : -size);
}

float sum_of(const Shape2& shape, int64_t i, int step) {
  float sum = 0;
  for (int32_t h = 0; h < shape.hosts; ++h) {
    float on_host = gradient(h * shape.each, i, step);
    for (int32_t r = 1; r < shape.each; ++r) on_host += gradient(h * shape.each + r, i, step);
    sum = h == 0 ? on_host : sum + on_host;
  }
  return sum;
}

TEST(Hierarchical, TheOrderShowsInTheTestsGradients) {
  const auto differ = [](const Shape2& one, const Shape2& other) {
    int64_t count = 0;
    for (int64_t i = 0; i < kCount; ++i) count += sum_of(one, i, 0) != sum_of(other, i, 0) ? 1 : 0;
    return count;
  };
  EXPECT_GT(differ({2, 2}, {1, 4}), 100);
  EXPECT_GT(differ({3, 2}, {2, 3}), 100);
  EXPECT_EQ(differ({1, 3}, {3, 1}), 0);
}

// SGD of rate 1 shows the sum itself.
TEST(Hierarchical, SumsHostByHost) {
  for (const Shape2& shape : kShapes) {
    for (const int32_t stage : {0, 1, 2, 3}) {
      // Stage 3 knows the mean only, whose factor is exact for a power of two.
      const int32_t world = shape.hosts * shape.each;
      if (stage == 3 && world != 4) continue;
      const float factor = stage == 3 ? 0.25F : 1;
      for (const char* order : {"boundary", "micro_step"}) {
        SCOPED_TRACE(std::to_string(shape.hosts) + " hosts, stage " + std::to_string(stage) + ", " +
                     order);
        run_ranks(world, [&](int32_t rank, otr_comm* all) {
          const Levels levels(all, rank, shape.each);
          Engine engine(levels.both.get(),
                        R"({"optimizer": {"type": "SGD", "params": {"lr": 1}}, )"
                        R"("gradient_clipping": 0, "gradient_allreduce_op": ")" +
                            std::string(stage == 3 ? "mean" : "sum") +
                            R"(", )"
                            R"("outrigger": {"reduction_order": ")" +
                            std::string(order) + R"("}, "zero_optimization": {"stage": )" +
                            std::to_string(stage) + R"(, "reduce_bucket_size": 512}})");
          engine.add("a", {kCount}, Values(kCount, 0));
          engine.add("b", {40}, Values(40, 1));
          engine.commit();
          Values expected(kCount, 0);
          for (int step = 0; step < 3; ++step) {
            Values mine;
            for (int64_t i = 0; i < kCount; ++i) mine.push_back(gradient(rank, i, step));
            engine.pass({{0, mine}, {1, Values(40, rank)}});
            EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
            for (int64_t i = 0; i < kCount; ++i) {
              auto& w = expected[static_cast<size_t>(i)];
              w = static_cast<float>(w) - sum_of(shape, i, step) * factor;
            }
          }
          EXPECT_EQ(engine.read(0), expected);
          EXPECT_EQ(engine.read(0, OTR_VALUE_PUBLISHED), expected);
        });
      }
    }
  }
}

// Where additions are exact, one level and two give the same bits, of every kind of engine.
class Hierarchical2 : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Hierarchical2, testing::ValuesIn(kKinds), name_of);

TEST_P(Hierarchical2, TrainsLikeOneLevelWhereSumsAreExact) {
  std::vector<std::vector<Values>> results(2);
  for (const bool two : {false, true}) {
    std::mutex mutex;
    run_ranks(6, [&](int32_t rank, otr_comm* all) {
      const Levels levels(all, rank, 2);
      Engine engine(two ? levels.both.get() : all, config_of(GetParam(), 2));
      otr_param_options frozen = param_options();
      frozen.trainable = 0;
      engine.add("a", {1000}, dyadic(1000, 1));
      engine.add("f", {77}, dyadic(77, 2), &frozen);
      engine.add("b", {3, 100}, dyadic(300, 3));
      engine.commit();
      for (int step = 0; step < 6; ++step) {
        const int64_t ids[3] = {0, 1, 2};
        otr_tensor weights[3];
        ASSERT_OK(otr_engine_prefetch(engine.get(), ids, 2, nullptr));
        ASSERT_OK(otr_engine_acquire(engine.get(), ids, 3, nullptr, weights));
        EXPECT_EQ(values_of(weights[1]), dyadic(77, 2));
        EXPECT_EQ(values_of(weights[0]), engine.read(0, OTR_VALUE_PUBLISHED));
        ASSERT_OK(otr_engine_release(engine.get(), ids, 3, nullptr));
        // A gradient that only some ranks have, and one beyond the declared number.
        std::vector<Engine::Gradient> gradients{{0, dyadic(1000, rank + step)}};
        if (rank % 2 == step % 2) gradients.push_back({2, dyadic(300, rank)});
        if (rank == 3) gradients.push_back({0, dyadic(1000, step)});
        engine.pass(gradients);
        engine.step();
      }
      const auto everything = engine.everything();
      EXPECT_OK(otr_engine_finalize(engine.get()));
      const std::lock_guard lock(mutex);
      results[two ? 1 : 0] = everything;
    });
  }
  EXPECT_EQ(results[0], results[1]);
}

// Each on a thread of its own, at its own pace.
TEST(Hierarchical, TwoEnginesOfOneCommunicatorTrainAtOnce) {
  const Shape2 shape{2, 2};
  run_ranks(4, [&](int32_t rank, otr_comm* all) {
    Levels levels(all, rank, shape.each);
    std::vector<Engine> engines;
    for (const int32_t stage : {2, 3}) {
      engines.emplace_back(levels.both.get(),
                           R"({"optimizer": {"type": "SGD", "params": {"lr": 1}}, )"
                           R"("gradient_clipping": 0, "zero_optimization": {"stage": )" +
                               std::to_string(stage) + R"(, "reduce_bucket_size": 512}})");
      engines.back().add("a", {kCount}, Values(kCount, 0));
      engines.back().commit();
    }
    levels.host.reset();  // the engines have what they need
    levels.across.reset();
    levels.both.reset();
    std::vector<std::thread> threads;
    for (size_t e = 0; e < engines.size(); ++e) {
      threads.emplace_back([&, e] {
        Values expected(kCount, 0);
        for (int step = 0; step < 20; ++step) {
          const int salt = step + static_cast<int>(e) * 100;
          Values mine;
          for (int64_t i = 0; i < kCount; ++i) mine.push_back(gradient(rank, i, salt));
          engines[e].pass({{0, mine}});
          EXPECT_EQ(engines[e].step().outcome, OTR_STEP_APPLIED);
          for (int64_t i = 0; i < kCount; ++i) {
            auto& w = expected[static_cast<size_t>(i)];
            w = static_cast<float>(w) - sum_of(shape, i, salt) * 0.25F;
          }
        }
        EXPECT_EQ(engines[e].read(0), expected);
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

// Of a pass and a step: where others have found a failure already, the pass is refused, too.
int32_t status_of_a_step(const Engine& engine) {
  Tensor gradient({kCount}, Values(kCount, 1));
  otr_pass* pass = nullptr;
  int32_t status = otr_pass_begin(engine.get(), nullptr, 0, nullptr, &pass);
  const Owned<otr_pass> owner(pass);
  if (status == OTR_OK) status = otr_pass_add_grad(pass, 0, &gradient, nullptr);
  if (status == OTR_OK) status = otr_pass_end(pass);
  return status == OTR_OK ? otr_engine_step(engine.get(), nullptr) : status;
}

// One engine that goes ends itself, on all ranks, and not the other one.
TEST(Hierarchical, AnEngineThatGoesLeavesTheOther) {
  for (const int32_t goes : {0, 3}) {
    run_ranks(4, [&](int32_t rank, otr_comm* all) {
      const Levels levels(all, rank, 2);
      const std::string config =
          R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 512}})";
      Engine kept(levels.both.get(), config), left(levels.both.get(), config);
      for (Engine* engine : {&kept, &left}) {
        engine->add("a", {kCount}, Values(kCount, 0));
        engine->commit();
      }
      if (rank == goes) {
        left.reset();
      } else {
        EXPECT_EQ(status_of_a_step(left), OTR_E_PEER_DEAD) << otr_last_error_message();
      }
      for (int step = 0; step < 3; ++step) {
        kept.pass({{0, Values(kCount, rank)}});
        EXPECT_EQ(kept.step().outcome, OTR_STEP_APPLIED);
      }
      EXPECT_OK(otr_comm_barrier(all));
    });
  }
}

// The report names the parameter and the rank as one level does, wherever the element's owner is.
// In 8-bit blocks, the elements of its block count with it.
TEST(Hierarchical, NamesWhoseGradientIsNotFinite) {
  for (const int32_t culprit : {0, 1, 2, 3, 4, 5}) {
    for (const auto& [order, quantised] :
         {std::pair("boundary", false), std::pair("micro_step", false), std::pair("boundary", true),
          std::pair("micro_step", true)}) {
      run_ranks(6, [&](int32_t rank, otr_comm* all) {
        const Levels levels(all, rank, 3);
        const std::string blocks = quantised ? "true" : "false";
        Engine engine(levels.both.get(),
                      R"({"zero_optimization": {"stage": 2, "zero_quantized_gradients": )" +
                          blocks + R"(}, "outrigger": {"reduction_order": ")" + order + R"("}})");
        engine.add("a", {kCount}, Values(kCount, 0));
        engine.add("b", {kCount}, Values(kCount, 0));
        engine.commit();
        Values bad(kCount, 1);
        const auto first = static_cast<size_t>(200 * culprit + 7);
        if (rank == culprit) bad[first] = HUGE_VAL;
        if (rank == 5) bad.back() = -HUGE_VAL;  // a later element
        engine.pass({{0, Values(kCount, 1)}, {1, bad}});
        const otr_step_report report = engine.step();
        EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
        EXPECT_EQ(report.nonfinite_param, 1);
        EXPECT_EQ(report.nonfinite_rank, culprit) << order << blocks;
        const bool one_block = first / 256 == (kCount - 1) / 256;
        EXPECT_EQ(report.nonfinite_count, !quantised ? 2 : one_block ? 256 : 512);
      });
    }
  }
}

// ---- Memory -------------------------------------------------------------------------------------

otr_estimate_options options_for_hosts(int32_t world, int32_t rank, int32_t hosts) {
  otr_estimate_options options = options_for(world, rank);
  options.separate_memory = 1;
  options.hosts = hosts;
  return options;
}

TEST(Hierarchical, TheEstimateIsTheLedger) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    run_ranks(6, [&](int32_t rank, otr_comm* all) {
      const Levels levels(all, rank, 2);
      Engine engine(levels.both.get(), config_of(kind));
      engine.add("a", {kCount}, Values(kCount, 0));
      engine.add("b", {40, 30}, Values(1200, 0));
      commit_as_estimated(engine, options_for_hosts(6, rank, 3));
    });
  }
}

TEST(Hierarchical, AnEstimateOfHostsThatCannotBeIsRefused) {
  Solo solo("{}");
  solo.engine.add("w", {4}, Values(4, 0));
  otr_estimate_options options;
  ASSERT_OK(otr_estimate_options_init(&options, sizeof options));
  size_t count = 0;
  const auto refused = [&](int32_t world, int32_t hosts, int32_t separate) {
    options.world_size = world;
    options.hosts = hosts;
    options.separate_memory = separate;
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_estimate(solo.engine.get(), &options, nullptr, &count),
                 "hosts = " + std::to_string(hosts), "a divisor");
  };
  refused(6, 4, 1);
  refused(6, -1, 1);
  refused(6, 2, 0);
  options.world_size = 6;
  options.hosts = 2;
  options.separate_memory = 1;
  EXPECT_OK(otr_engine_estimate(solo.engine.get(), &options, nullptr, &count));
}

// ---- Wrong use and failures ---------------------------------------------------------------------

TEST(Hierarchical, PlacesThatAreNoneAreRefusedOnAllRanks) {
  run_ranks(4, [](int32_t rank, otr_comm* all) {
    otr_comm* made = nullptr;
    ASSERT_OK(otr_comm_split(all, rank / 2, rank, &made));
    const Owned<otr_comm> host(made);
    ASSERT_OK(otr_comm_split(all, rank % 2, rank, &made));
    const Owned<otr_comm> across(made);
    // Two levels the wrong way round: rank 1 is not where it should be.
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_hierarchical(all, across.get(), host.get(), &made),
                 "rank 1 of 4", "consecutive");
    EXPECT_EQ(made, nullptr);
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_comm_create_hierarchical(all, host.get(), host.get(), &made),
                 "rank", "consecutive");
    EXPECT_OK(otr_comm_create_hierarchical(all, host.get(), across.get(), &made));
    const Owned<otr_comm> both(made);
    EXPECT_OK(otr_comm_barrier(both.get()));
  });
}

TEST(Hierarchical, OneCommunicatorCanBeAllThree) {
  const auto context = make_context(1);
  const auto self = make_self(context.get());
  otr_comm* made = nullptr;
  ASSERT_OK(otr_comm_create_hierarchical(self.get(), self.get(), self.get(), &made));
  const Owned<otr_comm> both(made);
  Engine engine(both.get(), R"({"optimizer": {"type": "SGD", "params": {"lr": 1}}})");
  engine.add("a", {4}, Values(4, 0));
  engine.commit();
  engine.pass({{0, Values(4, 0.25)}});
  EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(engine.read(0), Values(4, -0.25));
}

// A host that has the same ranks in another order would sum other ranks' slices.
TEST(Hierarchical, GroupsOfOtherRanksAreRefusedOnAllRanks) {
  run_ranks(4, [](int32_t rank, otr_comm* all) {
    const Levels good(all, rank, 2);
    otr_comm* made = nullptr;
    const bool outer = rank == 0 || rank == 3;
    ASSERT_OK(otr_comm_split(all, outer ? 0 : 1, rank, &made));
    const Owned<otr_comm> crossed(made);
    EXPECT_FAILS(OTR_E_ARGUMENT,
                 otr_comm_create_hierarchical(all, good.host.get(), crossed.get(), &made),
                 "rank 0 of 4 has rank 3", "across");
    EXPECT_FAILS(OTR_E_UNSUPPORTED,
                 otr_comm_create_hierarchical(all, good.host.get(), good.both.get(), &made),
                 "two levels");
    EXPECT_EQ(made, nullptr);
    EXPECT_OK(otr_comm_barrier(good.both.get()));
  });
}

// Sums are made in the host's memory, and come back as one.
TEST(Hierarchical, OnADeviceTheEstimateIsTheLedger) {
  for (const int32_t stage : {0, 1, 2, 3}) {
    for (const bool offloads : {false, true}) {
      if (stage == 0 && offloads) continue;
      run_ranks(
          4,
          [&](int32_t rank, otr_comm* all) {
            const Levels levels(all, rank, 2);
            const std::string offload =
                offloads ? R"(, "offload_optimizer": {"device": "cpu"})" : "";
            Engine engine(levels.both.get(), R"({"zero_optimization": {"stage": )" +
                                                 std::to_string(stage) + offload + "}}");
            ASSERT_OK(otr_engine_set_device(engine.get(), OTR_DEVICE_EXTENSION, 0));
            int64_t shape[1] = {kCount}, id = 0;
            otr_tensor declared;
            ASSERT_OK(otr_tensor_init(nullptr, "float32", 1, shape, &declared));
            declared.device = {OTR_DEVICE_EXTENSION, 0};
            ASSERT_OK(otr_engine_add_parameter(engine.get(), "a", &declared, nullptr, &id));
            commit_as_estimated(engine, options_for_hosts(4, rank, 2));
          },
          20, "simulated");
    }
  }
}

// A rank that goes ends every wait of the others, on its own host and on another, within seconds.
TEST(Hierarchical, ARankThatGoesIsNamedByAll) {
  for (const int32_t goes : {0, 3}) {
    std::atomic<int> told{0};
    run_ranks(
        4,
        [&](int32_t rank, otr_comm* all) {
          const Levels levels(all, rank, 2);
          Engine engine(levels.both.get(),
                        R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 512}})");
          engine.add("a", {kCount}, Values(kCount, 0));
          engine.commit();
          if (rank == goes) {
            engine.reset();
            return;
          }
          const auto begin = std::chrono::steady_clock::now();
          EXPECT_EQ(status_of_a_step(engine), OTR_E_PEER_DEAD) << otr_last_error_message();
          const std::string named = "rank " + std::to_string(goes) + " ";
          EXPECT_EQ(std::string(otr_last_error_message()).find(named), 0U)
              << otr_last_error_message();
          EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
          ++told;
        },
        30);
    EXPECT_EQ(told, 3);
  }
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// What the header promises to threads: "any thread" beside any other call, the destroy of a child
// beside a call on its parent, different handles in parallel. Worth most under ThreadSanitizer.
#include <atomic>
#include <cmath>
#include <thread>

#include "support.h"

namespace {

using namespace otr_test;

constexpr int64_t kCount = 600;

// Runs the bodies at the same time.
void together(const std::vector<std::function<void()>>& bodies) {
  std::atomic<size_t> ready{0};
  std::vector<std::thread> threads;
  for (const auto& body : bodies) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < bodies.size()) {
      }
      body();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class AnyThread : public testing::TestWithParam<Kind> {
 protected:
  AnyThread() : solo_(config_of(GetParam())) {
    for (int64_t p = 0; p < 8; ++p)
      solo_.engine.add(("p" + std::to_string(p)).c_str(), {kCount}, Values(kCount, 1));
  }
  Solo solo_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, AnyThread, testing::ValuesIn(kKinds), name_of);

// Four threads hand gradients over, to parameters of their own and to shared ones.
TEST_P(AnyThread, AddsGradients) {
  solo_.engine.commit();
  for (int round = 0; round < 5; ++round) {
    const auto pass = solo_.engine.begin();
    std::vector<std::function<void()>> bodies;
    for (int64_t t = 0; t < 4; ++t) {
      bodies.emplace_back([&, t] {
        Engine::add(pass, t, {kCount}, Values(kCount, 1));  // own
        for (int64_t p = 4; p < 8; ++p)
          Engine::add(pass, p, {kCount}, Values(kCount, 1));  // shared
      });
    }
    together(bodies);
    Engine::end(pass);
    const auto report = solo_.engine.step();
    EXPECT_EQ(report.grad_norm, std::sqrt(4.0 * kCount + 4.0 * kCount * 16));
  }
}

TEST_P(AnyThread, WritesSlots) {
  solo_.engine.commit();
  for (int round = 0; round < 5; ++round) {
    const auto pass = solo_.engine.begin();
    std::vector<std::function<void()>> bodies;
    for (int64_t t = 0; t < 4; ++t) {
      bodies.emplace_back([&, t] {
        for (const int64_t p : {t, t + 4}) {
          if (p == 7) continue;  // everybody's, below
          otr_tensor slot;
          EXPECT_OK(otr_pass_get_slot(pass.get(), p, &slot));
          for (int64_t i = 0; i < kCount; ++i) set_value(slot, i, 2);
          EXPECT_OK(otr_pass_add_grad(pass.get(), p, &slot, nullptr));
        }
        // One slot of a parameter is out at a time: whoever gets it hands it back.
        otr_tensor slot;
        const int32_t status = otr_pass_get_slot(pass.get(), 7, &slot);
        if (status == OTR_OK) {
          for (int64_t i = 0; i < kCount; ++i) set_value(slot, i, 0);
          EXPECT_OK(otr_pass_add_grad(pass.get(), 7, &slot, nullptr));
        } else {
          EXPECT_EQ(status, OTR_E_STATE);
        }
      });
    }
    together(bodies);
    Engine::end(pass);
    EXPECT_EQ(solo_.engine.step().grad_norm, std::sqrt(4.0 * 7 * kCount));
  }
}

// The pass ends while another thread still hands gradients over: each is taken whole or refused.
TEST_P(AnyThread, AddsBesideTheEnd) {
  solo_.engine.commit();
  for (int round = 0; round < 20; ++round) {
    const auto pass = solo_.engine.begin();
    std::atomic<int64_t> taken{0};
    const Tensor grad = Tensor::filled({kCount}, 1);
    together({[&] {
                for (int i = 0; i < round * 50; ++i) std::this_thread::yield();
                Engine::end(pass);
              },
              [&] {
                for (int64_t p = 0; p < 8; ++p) {
                  const int32_t status = otr_pass_add_grad(pass.get(), p, &grad, nullptr);
                  taken += status == OTR_OK ? 1 : 0;
                  EXPECT_TRUE(status == OTR_OK || status == OTR_E_STATE)
                      << otr_last_error_message();
                  otr_tensor slot;
                  const int32_t asked = otr_pass_get_slot(pass.get(), p, &slot);
                  EXPECT_TRUE(asked == OTR_OK || asked == OTR_E_STATE) << otr_last_error_message();
                }
              }});
    const auto report = solo_.engine.step();
    EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
    EXPECT_EQ(report.grad_norm, std::sqrt(static_cast<double>(taken * kCount)));
  }
}

TEST_P(AnyThread, QueriesBesideEverything) {
  std::atomic<bool> stop{false};
  otr_engine* engine = solo_.engine.get();
  together({[&] {  // the host's thread: an engine's whole life
              for (int64_t p = 8; p < 40; ++p)
                solo_.engine.add(("late" + std::to_string(p)).c_str(), {3}, Values(3, 1));
              solo_.engine.commit();
              for (int i = 0; i < 5; ++i) {
                solo_.engine.pass({{0, Values(kCount, 1)}, {5, Values(kCount, 1)}});
                solo_.engine.step();
              }
              EXPECT_OK(otr_engine_finalize(engine));
              stop = true;
            },
            [&] {
              while (!stop) {
                int64_t count = 0, id = 0;
                EXPECT_OK(otr_engine_parameter_count(engine, &count));
                EXPECT_GE(count, 8);
                EXPECT_OK(otr_engine_parameter_id(engine, "p5", &id));
                EXPECT_EQ(id, 5);
                const char* name = nullptr;
                EXPECT_OK(otr_engine_parameter_name(engine, 3, &name));
                EXPECT_STREQ(name, "p3");
                int32_t ndim = 0;
                const int64_t* shape = nullptr;
                EXPECT_OK(otr_engine_parameter_shape(engine, 3, &ndim, &shape));
                EXPECT_EQ(shape[0], kCount);
              }
            },
            [&] {
              while (!stop) {
                int64_t live = 0;
                EXPECT_OK(otr_engine_live_children(engine, &live));
                EXPECT_OK(otr_engine_check(engine));
              }
            }});
}

TEST_P(AnyThread, PassQueriesBesideGradients) {
  solo_.engine.commit();
  const Tensor output({2}, {3, 4});
  otr_pass* opened = nullptr;
  ASSERT_OK(otr_pass_begin(solo_.engine.get(), &output, 1, nullptr, &opened));
  const Owned<otr_pass> pass(opened);
  together({[&] {
              for (int64_t p = 0; p < 8; ++p) Engine::add(pass, p, {kCount}, Values(kCount, 1));
              Engine::end(pass);
            },
            [&] {
              for (int i = 0; i < 200; ++i) {
                otr_tensor t;
                double scale = 0;
                EXPECT_OK(otr_pass_get_output_grad(opened, 0, &t));
                EXPECT_OK(otr_pass_get_scale(opened, &scale));
                EXPECT_EQ(scale, 1);
              }
            }});
}

// A collector destroys a pass on a thread of its own while the host steps.
TEST_P(AnyThread, DestroysAPassBesideAStep) {
  solo_.engine.commit();
  for (int round = 0; round < 20; ++round) {
    auto pass = solo_.engine.begin();
    Engine::add(pass, 0, {kCount}, Values(kCount, 1));
    Engine::end(pass);
    together(
        {[&] { EXPECT_EQ(solo_.engine.step().outcome, OTR_STEP_APPLIED); }, [&] { pass.reset(); }});
  }
}

// The same with a pass that was not ended: the step is refused, or it discards.
TEST_P(AnyThread, AbandonsAPassBesideAStep) {
  solo_.engine.commit();
  for (int round = 0; round < 20; ++round) {
    auto pass = solo_.engine.begin();
    Engine::add(pass, 0, {kCount}, Values(kCount, 1));
    int32_t status = OTR_OK;
    together(
        {[&] { status = otr_engine_step(solo_.engine.get(), nullptr); }, [&] { pass.reset(); }});
    if (status == OTR_E_STATE) {
      EXPECT_EQ(solo_.engine.step().reason, OTR_SKIP_ABANDONED);
    } else {
      EXPECT_EQ(status, OTR_OK);
    }
  }
}

TEST_P(AnyThread, DestroysChildrenBesideTheirParents) {
  for (int round = 0; round < 10; ++round) {
    Solo solo(config_of(GetParam()));
    solo.engine.add("w", {kCount}, Values(kCount, 1));
    solo.engine.commit();
    auto pass = solo.engine.begin();
    together({[&] { pass.reset(); }, [&] { solo.engine.reset(); }, [&] { solo.comm.reset(); },
              [&] { solo.context.reset(); }});
  }
}

TEST(DifferentHandles, RunInParallel) {
  const auto context = make_context();
  std::vector<std::function<void()>> bodies;
  for (int t = 0; t < 4; ++t) {
    bodies.emplace_back([&, t] {
      const auto comm = make_self(context.get());
      Engine engine(comm.get(), config_of(kKinds[t]));
      engine.add("w", {kCount}, Values(kCount, 1));
      engine.commit();
      for (int i = 0; i < 10; ++i) {
        engine.pass({{0, Values(kCount, 1)}});
        EXPECT_EQ(engine.step().applied_steps, i + 1);
      }
    });
  }
  together(bodies);
}

TEST(DifferentHandles, ShardsInParallel) {
  const auto context = make_context();
  std::vector<std::function<void()>> bodies;
  for (int t = 0; t < 4; ++t) {
    bodies.emplace_back([&] {
      Tensor w = Tensor::filled({kCount}, 1), g = Tensor::filled({kCount}, 1);
      otr_shard* shard = nullptr;
      otr_optimizer* optimizer = nullptr;
      EXPECT_OK(otr_shard_wrap(context.get(), &w, &g, nullptr, &shard));
      EXPECT_OK(otr_optimizer_create(context.get(), "", &optimizer));
      for (int i = 0; i < 20; ++i) EXPECT_OK(otr_optimizer_step(optimizer, &shard, 1, nullptr));
      otr_optimizer_destroy(optimizer);
      otr_shard_destroy(shard);
    });
  }
  together(bodies);
}

}  // namespace

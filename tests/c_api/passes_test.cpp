// SPDX-License-Identifier: Apache-2.0
// Every form of backward: several passes at once, the callback, who ends a window, parameters that
// are frozen for a while.
#include <array>
#include <cmath>
#include <thread>

#include "support.h"

namespace {

using namespace otr_test;

class Passes : public testing::TestWithParam<Kind> {
 protected:
  static void declare(Engine& engine) {
    for (int p = 0; p < 4; ++p)
      engine.add(("p" + std::to_string(p)).c_str(), {600}, dyadic(600, p));
    engine.commit();
  }
  static Values gradient(int pass, int64_t id) { return dyadic(600, 10 * pass + id); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Passes, testing::ValuesIn(kKinds), name_of);

// Three passes one after the other, and the same three open at once, whichever ends first.
TEST_P(Passes, OpenAtOnceAddLikePassesInTurn) {
  const auto run = [&](Solo& solo, const std::array<int, 3>& ends, bool at_once) {
    declare(solo.engine);
    for (int window = 0; window < 2; ++window) {
      std::array<Owned<otr_pass>, 3> passes;
      if (at_once) {
        for (auto& pass : passes) pass = solo.engine.begin();
      }
      // Parameter by parameter, so that the passes fill their buckets side by side; the order of
      // the contributions to one parameter is that of the passes.
      for (int pass = 0; !at_once && pass < 3; ++pass) {
        auto& p = passes.at(static_cast<size_t>(pass)) = solo.engine.begin();
        for (int64_t id = 4; id-- > 0;) Engine::add(p, id, {600}, gradient(pass, id));
        Engine::end(p);
      }
      for (int64_t id = 4; at_once && id-- > 0;) {
        for (int pass = 0; pass < 3; ++pass) {
          Engine::add(passes.at(static_cast<size_t>(pass)), id, {600}, gradient(pass, id));
        }
      }
      if (at_once) {
        EXPECT_FAILS(OTR_E_STATE, otr_engine_step(solo.engine.get(), nullptr), "pass is open");
        for (const int pass : ends) Engine::end(passes.at(static_cast<size_t>(pass)));
      }
      EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
    }
    return solo.engine.everything();
  };
  Solo in_turn(config_of(GetParam()));
  const auto expected = run(in_turn, {}, false);
  for (const std::array<int, 3>& ends :
       {std::array<int, 3>{0, 1, 2}, std::array<int, 3>{2, 1, 0}, std::array<int, 3>{1, 2, 0}}) {
    Solo at_once(config_of(GetParam()));
    EXPECT_EQ(run(at_once, ends, true), expected);
  }
}

// Each pass has its own slot of one parameter, and what one writes the other does not see.
TEST_P(Passes, HaveSlotsOfTheirOwn) {
  Solo solo(config_of(GetParam()));
  declare(solo.engine);
  const auto first = solo.engine.begin(), second = solo.engine.begin();
  otr_tensor a, b;
  ASSERT_OK(otr_pass_get_slot(first.get(), 0, &a));
  ASSERT_OK(otr_pass_get_slot(second.get(), 0, &b));
  EXPECT_NE(a.data, b.data);
  for (int64_t i = 0; i < 600; ++i) {
    set_value(a, i, 2);
    set_value(b, i, 1);
  }
  otr_tensor c;
  EXPECT_FAILS(OTR_E_STATE, otr_pass_get_slot(first.get(), 0, &c), "\"p0\"", "slot");
  EXPECT_OK(otr_pass_add_grad(second.get(), 0, &b, nullptr));
  EXPECT_OK(otr_pass_add_grad(first.get(), 0, &a, nullptr));
  Engine::end(second);
  Engine::end(first);
  EXPECT_EQ(solo.engine.step().grad_norm, 3 * std::sqrt(600.0));
}

// Ranks in parallel, passes from two threads each; the order of begin is alike on all ranks.
TEST_P(Passes, OfSeveralRanksMeetInTheOrderOfBegin) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config_of(GetParam()));
    declare(engine);
    for (int step = 0; step < 3; ++step) {
      const auto first = engine.begin(), second = engine.begin();
      std::thread other([&] {
        for (int64_t id = 4; id-- > 0;) Engine::add(second, id, {600}, Values(600, 2));
        if (rank == 0) Engine::end(second);
      });
      for (int64_t id = 4; id-- > 0;) Engine::add(first, id, {600}, Values(600, 4));
      if (rank == 1) {
        Engine::end(first);
        other.join();
        Engine::end(second);
      } else {
        other.join();
        Engine::end(first);
      }
      EXPECT_EQ(engine.step().grad_norm, 6 * std::sqrt(2400.0));
    }
  });
}

TEST_P(Passes, OneAbandonedBesideOthersDiscardsTheWindow) {
  for (const bool empty : {true, false}) {
    Solo solo(config_of(GetParam()));
    declare(solo.engine);
    const auto kept = solo.engine.begin();
    auto lost = solo.engine.begin();
    Engine::add(kept, 1, {600}, Values(600, 1));
    if (!empty) Engine::add(lost, 1, {600}, Values(600, 1));
    lost.reset();
    Engine::end(kept);
    const auto report = solo.engine.step();
    EXPECT_EQ(report.reason, empty ? OTR_SKIP_NONE : OTR_SKIP_ABANDONED);
    solo.engine.pass({{1, Values(600, 2)}});
    EXPECT_EQ(solo.engine.step().grad_norm, 2 * std::sqrt(600.0)) << "nothing is left of it";
  }
}

// ---- The callback
// ---------------------------------------------------------------------------------

struct Backward {
  int32_t answer = 0;
  int calls = 0;
  otr_engine* engine = nullptr;
  static int32_t run(otr_pass* pass, const otr_tensor* output_grads, int64_t count, void* user) {
    auto& self = *static_cast<Backward*>(user);
    ++self.calls;
    EXPECT_EQ(count, 2);
    // The gradient of the parameter is the first output's gradient, twice.
    EXPECT_OK(otr_pass_add_grad(pass, 0, &output_grads[0], nullptr));
    EXPECT_OK(otr_pass_add_grad(pass, 0, &output_grads[0], nullptr));
    EXPECT_EQ(value_at(output_grads[1], 0), 1);
    EXPECT_FAILS(OTR_E_STATE, otr_engine_step(self.engine, nullptr), "pass is open");
    return self.answer;
  }
};

TEST_P(Passes, AsACallback) {
  Solo solo(config_of(GetParam()));
  declare(solo.engine);
  Backward backward;
  backward.engine = solo.engine.get();
  const Tensor grad({600}, Values(600, 0.5)), loss({}, {1});
  const otr_tensor outputs[2] = {grad.get(), loss.get()};
  EXPECT_OK(otr_engine_backward(solo.engine.get(), outputs, 2, nullptr, Backward::run, &backward));
  EXPECT_EQ(solo.engine.step().grad_norm, std::sqrt(600.0));

  backward.answer = 7;
  EXPECT_FAILS(
      OTR_E_HOST,
      otr_engine_backward(solo.engine.get(), outputs, 2, nullptr, Backward::run, &backward), "7");
  EXPECT_EQ(solo.engine.step().reason, OTR_SKIP_ABANDONED);
  EXPECT_EQ(backward.calls, 2);
  int64_t live = -1;
  EXPECT_OK(otr_engine_live_children(solo.engine.get(), &live));
  EXPECT_EQ(live, 0);
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_engine_backward(solo.engine.get(), outputs, 2, nullptr, nullptr, nullptr),
               "vjp");
  EXPECT_FAILS(
      OTR_E_ARGUMENT,
      otr_engine_backward(solo.engine.get(), nullptr, 2, nullptr, Backward::run, &backward),
      "output_grads");
}

// ---- Who ends a window
// ----------------------------------------------------------------------------

TEST_P(Passes, TheCallerEndsAWindow) {
  for (const char* divisor : {"configured", "configured_at_step", "counted"}) {
    Solo solo(
        config_of(GetParam(), 2, "", R"("accumulation_divisor": ")" + std::string(divisor) + '"'));
    declare(solo.engine);
    const Tensor one({}, {1});
    int32_t boundary = -1;
    const auto window = [&](int32_t steps) {
      otr_step_report report{};
      for (int32_t i = 0; i < steps; ++i) {
        EXPECT_OK(otr_engine_set_boundary(solo.engine.get(),
                                          i + 1 < steps ? OTR_BOUNDARY_NO : OTR_BOUNDARY_YES));
        EXPECT_OK(otr_engine_get_boundary(solo.engine.get(), &boundary));
        EXPECT_EQ(boundary, i + 1 < steps ? 0 : 1);
        otr_pass* pass = nullptr;
        EXPECT_OK(otr_pass_begin(solo.engine.get(), &one, 1, nullptr, &pass));
        const Owned<otr_pass> owned(pass);
        otr_tensor grad;
        EXPECT_OK(otr_pass_get_output_grad(pass, 0, &grad));
        EXPECT_EQ(value_at(grad, 0), std::string_view(divisor) == "configured" ? 0.5 : 1.0);
        Engine::add(owned, 0, {600}, Values(600, value_at(grad, 0)));
        Engine::end(owned);
        report = solo.engine.step();
        EXPECT_EQ(report.outcome, i + 1 < steps ? OTR_STEP_ACCUMULATED : OTR_STEP_APPLIED);
      }
      return report;
    };
    const bool counted = std::string_view(divisor) == "counted";
    for (const int32_t steps : {1, 3, 2, 4}) {
      const double mean = counted ? 1.0 : steps / 2.0;
      EXPECT_NEAR(window(steps).grad_norm, mean * std::sqrt(600.0), 1e-5) << divisor << steps;
    }
    EXPECT_OK(otr_engine_set_boundary(solo.engine.get(), OTR_BOUNDARY_CONFIGURED));
    for (int i = 0; i < 4; ++i) {
      EXPECT_OK(otr_engine_get_boundary(solo.engine.get(), &boundary));
      EXPECT_EQ(boundary, i % 2);
      solo.engine.pass({{0, Values(600, 1)}});
      EXPECT_EQ(solo.engine.step().outcome, i % 2 == 0 ? OTR_STEP_ACCUMULATED : OTR_STEP_APPLIED);
    }
  }
  Solo solo(config_of(GetParam()));
  for (const int32_t bad : {-1, 3}) {
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_set_boundary(solo.engine.get(), bad),
                 std::to_string(bad));
  }
}

// ---- Frozen for a while
// ---------------------------------------------------------------------------

TEST_P(Passes, AParameterIsFrozenAndThawed) {
  for (const char* unused : {"skip", "zero"}) {
    const std::string own = R"("unused_parameters": ")" + std::string(unused) + '"';
    run_ranks(2, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, config_of(GetParam(), 1, "", own));
      declare(engine);
      EXPECT_OK(otr_engine_set_trainable(engine.get(), 1, 0));
      EXPECT_OK(otr_engine_set_trainable(engine.get(), 2, 0));
      const auto before = engine.everything();
      const auto pass = engine.begin();
      const Tensor grad = Tensor::filled({600}, 1);
      EXPECT_FAILS(OTR_E_STATE, otr_pass_add_grad(pass.get(), 1, &grad, nullptr), "\"p1\"",
                   "frozen", "otr_engine_set_trainable");
      for (const int64_t id : {3, 0}) Engine::add(pass, id, {600}, Values(600, 1));
      Engine::end(pass);
      EXPECT_FAILS(OTR_E_STATE, otr_engine_set_trainable(engine.get(), 1, 1), "window");
      const auto report = engine.step();
      EXPECT_EQ(report.grad_norm, std::sqrt(1200.0));
      EXPECT_EQ(report.updates, 1200);
      const auto after = engine.everything();
      for (const size_t id : {1, 2}) {
        for (size_t value = 0; value < 4; ++value) {
          EXPECT_EQ(after[4 * id + value], before[4 * id + value]);
        }
      }
      EXPECT_NE(after[0], before[0]);
      EXPECT_OK(otr_engine_set_trainable(engine.get(), 1, 1));
      engine.pass({{3, Values(600, 1)}, {1, Values(600, 1)}, {0, Values(600, 1)}});
      EXPECT_EQ(engine.step().updates, 1800);
      if (rank == 1) {
        EXPECT_OK(otr_engine_set_trainable(engine.get(), 1, 0));
      }
      engine.pass({{0, Values(600, 1)}});
      EXPECT_FAILS(OTR_E_MISMATCH, otr_engine_step(engine.get(), nullptr), "rank 1",
                   "otr_engine_set_trainable");
    });
  }
}

TEST(PassesOfAFrozenDeclaration, CannotBeThawed) {
  Solo solo("");
  otr_param_options options = param_options();
  options.trainable = 0;
  solo.engine.add("base", {3}, {1, 2, 3}, &options);
  solo.engine.commit();
  EXPECT_FAILS(OTR_E_STATE, otr_engine_set_trainable(solo.engine.get(), 0, 1), "\"base\"");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_set_trainable(solo.engine.get(), 0, 2), "2");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_set_trainable(solo.engine.get(), 5, 1), "5");
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Loss scaling: what the scale multiplies, when it moves, and gradients that carry it elsewhere.
#include <algorithm>
#include <cmath>

#include "support.h"

namespace {

using namespace otr_test;

constexpr const char* kStages[] = {"0", "1", "2", "3"};

std::string fp16(const std::string& stage, const std::string& members,
                 const std::string& more = "\"gradient_clipping\": 0") {
  return R"({"fp16": {"enabled": true, )" + members + R"(}, "zero_optimization": {"stage": )" +
         stage + R"(}, "optimizer": {"type": "AdamW", "params": {"lr": 0.125}}, )" + more + "}";
}

double loss_scale(const Engine& engine) {
  double scale = -1;
  EXPECT_OK(otr_engine_get_loss_scale(engine.get(), &scale));
  return scale;
}

// One pass whose gradient of "w" is `value` times the scaled gradient of the loss.
otr_step_report step(const Engine& engine, double value) {
  const Tensor one({}, {1});
  otr_pass* pass = nullptr;
  EXPECT_OK(otr_pass_begin(engine.get(), &one, 1, nullptr, &pass));
  const Owned<otr_pass> owned(pass);
  otr_tensor seed;
  EXPECT_OK(otr_pass_get_output_grad(pass, 0, &seed));
  Engine::add(owned, 0, {300}, Values(300, value * value_at(seed, 0)));
  Engine::end(owned);
  return engine.step();
}

TEST(LossScale, MultipliesTheSeedAndIsDividedOutOnce) {
  for (const char* stage : kStages) {
    for (const char* master : {"false", "true"}) {
      if (std::string_view(stage) == "0" && std::string_view(master) == "true") continue;
      const std::string members =
          R"("initial_scale_power": 10, "fp16_master_weights_and_gradients": )" +
          std::string(master);
      Solo solo(fp16(stage, members));
      solo.engine.add("w", {300}, Values(300, 1));
      solo.engine.commit();
      EXPECT_EQ(loss_scale(solo.engine), 1024);
      const auto report = step(solo.engine, 0.5);
      EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
      EXPECT_EQ(report.loss_scale, 1024);
      EXPECT_EQ(report.grad_norm, 0.5 * std::sqrt(300.0));
      EXPECT_NEAR(solo.engine.read(0, OTR_VALUE_EXP_AVG)[7], 0.05, 1e-8);
      EXPECT_NEAR(solo.engine.read(0)[7], 0.875, 1e-3);
      EXPECT_EQ(solo.engine.read(0, OTR_VALUE_PUBLISHED)[7],
                round_to("float16", solo.engine.read(0)[7]));
    }
  }
}

// A gradient that float16 holds only because it is scaled.
TEST(LossScale, SavesAGradientThatFloat16CannotHold) {
  Solo solo(fp16("2", R"("loss_scale": 1024)"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  EXPECT_EQ(step(solo.engine, 0x1p-26).grad_norm, 0x1p-26 * std::sqrt(300.0));
}

// The scale doubles with the update of a clean window, whose own gradients carried the old one.
TEST(LossScale, GrowsAfterTheWindowThatItWasRightFor) {
  Solo solo(fp16("1", R"("initial_scale_power": 4, "loss_scale_window": 2)",
                 R"("gradient_clipping": 0, "gradient_accumulation_steps": 2)"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  const double expected[] = {16, 16, 16, 32, 32, 64, 64};
  for (const double scale : expected) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(loss_scale(solo.engine), scale);
      const auto report = step(solo.engine, 0.25);
      EXPECT_EQ(report.loss_scale, scale);
      if (i == 1) {
        EXPECT_EQ(report.grad_norm, 0.25 * std::sqrt(300.0));
      }
    }
  }
}

TEST(LossScale, HalvesOnOverflowAfterTheHysteresis) {
  Solo solo(fp16("3", R"("initial_scale_power": 4, "hysteresis": 2)"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  const auto before = solo.engine.everything();
  const double after[] = {16, 8, 4, 2, 1};  // the hysteresis is not refilled by a halving
  for (const double scale : after) {
    const auto report = step(solo.engine, 1e5);
    EXPECT_EQ(report.reason, OTR_SKIP_NONFINITE);
    EXPECT_EQ(report.nonfinite_param, 0);
    EXPECT_EQ(loss_scale(solo.engine), scale);
  }
  // At the floor: the step says so, once a window, and the engine goes on.
  for (int i = 0; i < 2; ++i) {
    const Tensor inf = Tensor::filled({300}, INFINITY);
    const auto pass = solo.engine.begin();
    EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &inf, nullptr));
    Engine::end(pass);
    otr_step_report report = OTR_STEP_REPORT_INIT;
    EXPECT_FAILS(OTR_E_LOSS_SCALE, otr_engine_step(solo.engine.get(), &report), "smallest",
                 "min_loss_scale", "skipped");
    EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
    EXPECT_EQ(report.skipped_steps, 6 + i);
  }
  EXPECT_EQ(solo.engine.everything(), before);
  EXPECT_OK(otr_engine_check(solo.engine.get()));
  EXPECT_EQ(step(solo.engine, 1).outcome, OTR_STEP_APPLIED);
}

TEST(LossScale, AFixedOneNeitherFallsNorFails) {
  Solo solo(fp16("2", R"("loss_scale": 24)"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(step(solo.engine, 1e6).reason, OTR_SKIP_NONFINITE);
    EXPECT_EQ(loss_scale(solo.engine), 24);
  }
  EXPECT_NEAR(step(solo.engine, 2).grad_norm, 2 * std::sqrt(300.0), 1e-4);
}

TEST(LossScale, HasACap) {
  Solo solo(fp16("2", R"("initial_scale_power": 4, "loss_scale_window": 1)",
                 R"("outrigger": {"max_loss_scale": 100})"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  for (int i = 0; i < 8; ++i) step(solo.engine, 1);
  EXPECT_EQ(loss_scale(solo.engine), 100);
  Solo other("");
  otr_engine* engine = nullptr;
  EXPECT_FAILS(OTR_E_CONFIG,
               otr_engine_create(other.comm.get(),
                                 fp16("2", R"("initial_scale_power": 8)",
                                      R"("outrigger": {"max_loss_scale": 100})")
                                     .c_str(),
                                 &engine),
               "max_loss_scale", "initial_scale_power");
}

TEST(LossScale, ComesWithTheHostsAutocast) {
  Solo solo(R"({"torch_autocast": {"enabled": true, "dtype": "fp16"}, "gradient_clipping": 0,
                "fp16": {"initial_scale_power": 5}})");
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  EXPECT_EQ(loss_scale(solo.engine), 32);
  EXPECT_EQ(step(solo.engine, 3).grad_norm, 3 * std::sqrt(300.0));
  Solo without("");
  EXPECT_EQ(loss_scale(without.engine), 1);
}

// ---- Output gradients that overflow
// ---------------------------------------------------------------

otr_call_info info_with(uint32_t flags) {
  otr_call_info info;
  EXPECT_OK(otr_call_info_init(&info, sizeof info));
  info.flags = flags;
  return info;
}

TEST(SeedOverflow, IsKnownAtOnceAndLowersTheScale) {
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, fp16("2", R"("initial_scale_power": 17, "hysteresis": 1)"));
    engine.add("w", {300}, Values(300, 1));
    engine.commit();
    const Tensor one({}, {1}, "float16"), small({2}, {0, rank == 1 ? 1 : 0x1p-10}, "float16");
    const otr_tensor outputs[2] = {small.get(), one.get()};
    const otr_call_info keep = info_with(OTR_PASS_KEEP_DTYPE);
    for (const bool kept : {false, true}) {
      otr_pass* pass = nullptr;
      ASSERT_OK(
          otr_pass_begin(engine.get(), outputs, rank == 0 ? 1 : 2, kept ? &keep : nullptr, &pass));
      const Owned<otr_pass> owned(pass);
      otr_tensor seed;
      ASSERT_OK(otr_pass_get_output_grad(pass, 0, &seed));
      EXPECT_EQ(seed.dtype.bits, kept ? 16 : 32);
      int64_t index = -2;
      EXPECT_OK(otr_pass_get_seed_overflow(pass, &index));
      EXPECT_EQ(index, kept && rank == 1 ? 0 : -1) << "2^17 is beyond float16, 2^7 is not";
      Engine::add(owned, 0, {300}, Values(300, 1));
      Engine::end(owned);
      const auto report = engine.step();
      if (!kept) {
        EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
        continue;
      }
      EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
      EXPECT_EQ(report.reason, OTR_SKIP_SEED_OVERFLOW);
      EXPECT_EQ(report.nonfinite_rank, 1);
      EXPECT_EQ(report.nonfinite_param, -1);
      EXPECT_EQ(loss_scale(engine), 0x1p16);
    }
  });
}

TEST(SeedOverflow, IsNotAGradientThatWasInfiniteBefore) {
  Solo solo(fp16("2", R"("hysteresis": 1)"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  const Tensor inf({}, {INFINITY}), huge({}, {3e38}), wide({}, {1e300}, "float64");
  const struct {
    const Tensor& output;
    int64_t expected;
  } cases[] = {{inf, -1}, {huge, 0}, {wide, -1}};
  for (const auto& [output, expected] : cases) {
    otr_pass* pass = nullptr;
    ASSERT_OK(otr_pass_begin(solo.engine.get(), &output, 1, nullptr, &pass));
    const Owned<otr_pass> owned(pass);
    int64_t index = -2;
    EXPECT_OK(otr_pass_get_seed_overflow(pass, &index));
    EXPECT_EQ(index, expected);
  }
}

// ---- Gradients that go elsewhere
// ------------------------------------------------------------------

TEST(Unscale, GivesBackWhatBeginMultiplied) {
  Solo solo(fp16("2", R"("loss_scale": 1024)", R"("gradient_accumulation_steps": 4)"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  const Tensor seed({3}, {1, -2, 0.5});
  otr_pass* pass = nullptr;
  ASSERT_OK(otr_pass_begin(solo.engine.get(), &seed, 1, nullptr, &pass));
  const Owned<otr_pass> owned(pass);
  double scale = 0;
  EXPECT_OK(otr_pass_get_scale(pass, &scale));
  EXPECT_EQ(scale, 256);
  otr_tensor scaled;
  ASSERT_OK(otr_pass_get_output_grad(pass, 0, &scaled));
  Tensor out({3}, {9, 9, 9}, "float16");
  EXPECT_OK(otr_pass_unscale(pass, &scaled, &out));
  EXPECT_EQ(out.values(), seed.values());
  EXPECT_OK(otr_pass_unscale(pass, &scaled, &scaled)) << "in place";
  EXPECT_EQ(values_of(scaled), seed.values());
  Tensor other({2}, {9, 9});
  EXPECT_FAILS(OTR_E_SHAPE, otr_pass_unscale(pass, &scaled, &other), "[3]", "[2]");
}

// What a tag brought along goes, too.
TEST(Unscale, TakesOutWhatCameWithATag) {
  Solo solo(fp16("2", R"("loss_scale": 1024)", R"("gradient_accumulation_steps": 4)"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  const struct {
    double loss_scale;
    int32_t accumulation, ranks;
  } tags[] = {{64, 2, 1}, {64, 0, 0}, {1, 3, 0}, {2048, 1, 2}};
  for (const auto& [scale, accumulation, ranks] : tags) {
    otr_call_info tag = info_with(0);
    tag.loss_scale = scale;
    tag.accumulation = accumulation;
    tag.ranks = ranks;
    const double carried = scale / std::max(1, accumulation);
    const Tensor seed({2}, {3 * carried, -6 * carried});
    otr_pass* pass = nullptr;
    ASSERT_OK(otr_pass_begin(solo.engine.get(), &seed, 1, &tag, &pass));
    const Owned<otr_pass> owned(pass);
    otr_tensor scaled;
    ASSERT_OK(otr_pass_get_output_grad(pass, 0, &scaled));
    Tensor out({2}, {9, 9});
    EXPECT_OK(otr_pass_unscale(pass, &scaled, &out));
    // Two ranks' mean over there, one rank here: half of each rank's gradient.
    const double mean = ranks == 2 ? 0.5 : 1;
    EXPECT_NEAR(out.values()[0], 3 * mean, 1e-6);
    EXPECT_NEAR(out.values()[1], -6 * mean, 1e-6);
  }
}

TEST(Tag, SaysWhatThePassAppliedAndIsHonouredOnce) {
  Solo from(fp16("2", R"("loss_scale": 1024)", R"("gradient_accumulation_steps": 4)"));
  Solo to(fp16("1", R"("loss_scale": 16)",
               R"("gradient_accumulation_steps": 3, "gradient_clipping": 0)"));
  for (Solo* solo : {&from, &to}) {
    solo->engine.add("w", {300}, Values(300, 1));
    solo->engine.commit();
  }
  const auto first = from.engine.begin();
  otr_call_info tag = info_with(0);
  ASSERT_OK(otr_pass_get_tag(first.get(), &tag));
  EXPECT_EQ(tag.loss_scale, 1024);
  EXPECT_EQ(tag.accumulation, 4);
  EXPECT_EQ(tag.ranks, 1);
  const Tensor grad({2}, {1024, -512});  // 1 and -0.5, already divided by 4 accumulation steps
  otr_pass* pass = nullptr;
  ASSERT_OK(otr_pass_begin(to.engine.get(), &grad, 1, &tag, &pass));
  Owned<otr_pass> owned(pass);
  otr_tensor seed;
  ASSERT_OK(otr_pass_get_output_grad(pass, 0, &seed));
  EXPECT_EQ(values_of(seed), (Values{16, -8})) << "the own loss scale, and no further division";
  otr_call_info onwards = info_with(0);
  ASSERT_OK(otr_pass_get_tag(pass, &onwards));
  EXPECT_EQ(onwards.loss_scale, 16);
  EXPECT_EQ(onwards.accumulation, 4);
  owned.reset();

  tag.ranks = 2;  // the sum over two ranks is still to be halved there, and here nothing is
  tag.accumulation = 0;
  ASSERT_OK(otr_pass_begin(to.engine.get(), &grad, 1, &tag, &pass));
  owned.reset(pass);
  ASSERT_OK(otr_pass_get_output_grad(pass, 0, &seed));
  EXPECT_NEAR(value_at(seed, 0), 16.0 / 3 / 2, 1e-6);
  owned.reset();
}

TEST(Tag, OfASingleGradient) {
  Solo solo(fp16("1", R"("loss_scale": 16)", R"("gradient_clipping": 0)"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  otr_call_info tag = info_with(0);
  tag.loss_scale = 128;
  tag.accumulation = 1;
  const auto pass = solo.engine.begin();
  const Tensor grad = Tensor::filled({300}, 256);
  EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &grad, &tag));
  otr_tensor slot;
  ASSERT_OK(otr_pass_get_slot(pass.get(), 0, &slot));
  for (int64_t i = 0; i < 300; ++i) set_value(slot, i, 128);
  EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &slot, &tag));
  Engine::end(pass);
  EXPECT_EQ(solo.engine.step().grad_norm, 3 * std::sqrt(300.0));
}

TEST(Tag, IsCheckedBeforeAnythingHappens) {
  Solo solo(fp16("1", R"("hysteresis": 1)", R"("outrigger": {"accumulation_divisor": "counted"})"));
  solo.engine.add("w", {300}, Values(300, 1));
  solo.engine.commit();
  otr_pass* pass = nullptr;
  const auto begin = [&](double scale, int32_t accumulation, int32_t ranks) {
    otr_call_info tag = info_with(0);
    tag.loss_scale = scale;
    tag.accumulation = accumulation;
    tag.ranks = ranks;
    return otr_pass_begin(solo.engine.get(), nullptr, 0, &tag, &pass);
  };
  EXPECT_FAILS(OTR_E_ARGUMENT, begin(-2, 0, 0), "loss_scale", "-2");
  EXPECT_FAILS(OTR_E_ARGUMENT, begin(NAN, 0, 0), "loss_scale", "nan");
  EXPECT_FAILS(OTR_E_ARGUMENT, begin(0, 2, 0), "accumulation 2");
  EXPECT_FAILS(OTR_E_ARGUMENT, begin(0, 0, 2), "ranks 2");
  EXPECT_FAILS(OTR_E_ARGUMENT, begin(1, -1, 0), "accumulation -1");
  EXPECT_FAILS(OTR_E_STATE, begin(1, 2, 0), "counted", "2");
  int64_t live = -1;
  EXPECT_OK(otr_engine_live_children(solo.engine.get(), &live));
  EXPECT_EQ(live, 0);
}

// Each engine tells of its own last step.
TEST(LossScale, AtTheSmallestEveryReportSaysSoUntilTheNextStep) {
  const std::string config =
      fp16("2", R"("initial_scale_power": 0, "hysteresis": 1, "min_loss_scale": 1)");
  Solo solo(config);
  Engine other(solo.comm.get(), config);
  for (Engine* e : {&solo.engine, &other}) {
    e->add("w", {4}, Values(4, 1));
    e->commit();
    e->pass({{0, Values(4, HUGE_VAL)}});
  }
  otr_engine* engines[2] = {solo.engine.get(), other.get()};
  EXPECT_FAILS(OTR_E_LOSS_SCALE, otr_step_many(engines, 2, nullptr, nullptr));
  for (Engine* e : {&solo.engine, &other}) {
    e->pass({{0, Values(4, 1)}});
    EXPECT_EQ(e->step().outcome, OTR_STEP_APPLIED);
  }
  solo.engine.pass({{0, Values(4, HUGE_VAL)}});
  EXPECT_OK(otr_engine_step_begin(engines[0]));
  for (int i = 0; i < 3; ++i) {
    otr_step_report report = OTR_STEP_REPORT_INIT;
    EXPECT_FAILS(OTR_E_LOSS_SCALE, otr_engine_report(engines[0], -1, &report));
    EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED);
  }
}

}  // namespace

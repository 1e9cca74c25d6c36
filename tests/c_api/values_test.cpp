// SPDX-License-Identifier: Apache-2.0
// Reading and writing whole parameters and their states.
#include "support.h"

namespace {

using namespace otr_test;

class ParameterValues : public testing::TestWithParam<Kind> {
 protected:
  ParameterValues() : solo_(config_of(GetParam())) {
    solo_.engine.add("w", {7}, dyadic(7, 1));
    solo_.engine.add("empty", {0}, {});
    solo_.engine.commit();
  }
  Solo solo_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, ParameterValues, testing::ValuesIn(kKinds), name_of);

TEST_P(ParameterValues, MasterAndPublishedAreTheInitialValues) {
  EXPECT_EQ(solo_.engine.read(0, OTR_VALUE_MASTER), dyadic(7, 1));
  EXPECT_EQ(solo_.engine.read(0, OTR_VALUE_PUBLISHED), dyadic(7, 1));
}

TEST_P(ParameterValues, StatesBeginAtZeroAndMove) {
  EXPECT_EQ(solo_.engine.read(0, OTR_VALUE_EXP_AVG), Values(7, 0));
  EXPECT_EQ(solo_.engine.read(0, OTR_VALUE_EXP_AVG_SQ), Values(7, 0));
  solo_.engine.pass({{0, Values(7, 2)}});
  solo_.engine.step();
  for (const double m : solo_.engine.read(0, OTR_VALUE_EXP_AVG)) {
    EXPECT_NEAR(m, 0.2, 0.2 / 128);
  }
  for (const double v : solo_.engine.read(0, OTR_VALUE_EXP_AVG_SQ)) {
    EXPECT_NEAR(v, 0.004, 0.004 / 128);
  }
}

TEST_P(ParameterValues, OfAnUnknownKindOrParameter) {
  const Tensor out = Tensor::filled({7}, 5);
  for (const int32_t value : {-1, 5, INT32_MAX}) {
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_parameter_read(solo_.engine.get(), 0, value, &out),
                 std::to_string(value));
  }
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_read(solo_.engine.get(), 5, 0, &out), "5");
  EXPECT_FAILS(OTR_E_NOT_FOUND,
               otr_engine_parameter_write(solo_.engine.get(), -5, OTR_VALUE_MASTER, &out), "-5");
  EXPECT_EQ(out.values(), Values(7, 5)) << "a failed read wrote";
}

TEST_P(ParameterValues, OfAnEmptyParameter) {
  for (int32_t value = OTR_VALUE_MASTER; value <= OTR_VALUE_EXP_AVG_SQ; ++value) {
    const Tensor out({0}, {});
    EXPECT_OK(otr_engine_parameter_read(solo_.engine.get(), 1, value, &out));
  }
  const Tensor given({0}, {});
  EXPECT_OK(otr_engine_parameter_write(solo_.engine.get(), 1, OTR_VALUE_MASTER, &given));
}

TEST_P(ParameterValues, AreRoundedToTheOutputsDtype) {
  const double third = static_cast<double>(static_cast<float>(1.0 / 3));
  const Tensor given = Tensor::filled({7}, third);
  EXPECT_OK(otr_engine_parameter_write(solo_.engine.get(), 0, OTR_VALUE_MASTER, &given));
  const double master = solo_.engine.read(0)[0];
  const std::string_view precision = GetParam().precision;
  const bool low = precision == "bf16_states" || precision == "fp16_master";
  const char* format = low ? compute_dtype(GetParam()) : "float32";
  EXPECT_EQ(master, static_cast<double>(round_to(format, third)));
  for (const char* dtype : {"float64", "float32", "float16", "bfloat16"}) {
    const Tensor out = Tensor::filled({7}, 0, dtype);
    EXPECT_OK(otr_engine_parameter_read(solo_.engine.get(), 0, OTR_VALUE_MASTER, &out));
    EXPECT_EQ(out.values(), Values(7, static_cast<double>(round_to(dtype, master)))) << dtype;
  }
}

TEST_P(ParameterValues, WriteKeepsTheStates) {
  solo_.engine.pass({{0, dyadic(7, 3)}});
  solo_.engine.step();
  const Values m = solo_.engine.read(0, OTR_VALUE_EXP_AVG);
  const Values v = solo_.engine.read(0, OTR_VALUE_EXP_AVG_SQ);
  const Tensor given({7}, dyadic(7, 9));
  EXPECT_OK(otr_engine_parameter_write(solo_.engine.get(), 0, OTR_VALUE_MASTER, &given));
  EXPECT_EQ(solo_.engine.read(0, OTR_VALUE_EXP_AVG), m);
  EXPECT_EQ(solo_.engine.read(0, OTR_VALUE_EXP_AVG_SQ), v);
  EXPECT_EQ(solo_.engine.read(0, OTR_VALUE_MASTER), dyadic(7, 9));
  EXPECT_EQ(solo_.engine.read(0, OTR_VALUE_PUBLISHED), dyadic(7, 9));
}

TEST_P(ParameterValues, WriteIsRefusedBetweenAPassAndItsStep) {
  const Tensor given = Tensor::filled({7}, 9);
  solo_.engine.pass({{0, Values(7, 1)}});
  EXPECT_FAILS(OTR_E_STATE,
               otr_engine_parameter_write(solo_.engine.get(), 0, OTR_VALUE_MASTER, &given), "step");
  EXPECT_EQ(solo_.engine.read(0), dyadic(7, 1));
  EXPECT_EQ(solo_.engine.step().outcome, OTR_STEP_APPLIED);
  EXPECT_OK(otr_engine_parameter_write(solo_.engine.get(), 0, OTR_VALUE_MASTER, &given));
}

// Between the passes of a window, too.
TEST(ParameterWrite, IsRefusedInsideAWindow) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Solo solo(config_of(kind, 2));
    solo.engine.add("w", {1}, {1});
    solo.engine.commit();
    solo.engine.pass({{0, {1}}});
    EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_ACCUMULATED);
    const Tensor given = Tensor::filled({1}, 9);
    EXPECT_FAILS(OTR_E_STATE,
                 otr_engine_parameter_write(solo.engine.get(), 0, OTR_VALUE_MASTER, &given),
                 "step");
    solo.engine.pass({{0, {1}}});
    EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
    EXPECT_OK(otr_engine_parameter_write(solo.engine.get(), 0, OTR_VALUE_MASTER, &given));
    EXPECT_EQ(solo.engine.read(0), (Values{9}));
  }
}

// An acquired tensor shows the new value, and its release is still due: only a step ends acquires.
TEST_P(ParameterValues, WriteAndAcquire) {
  const int64_t id = 0;
  otr_tensor held;
  ASSERT_OK(otr_engine_acquire(solo_.engine.get(), &id, 1, nullptr, &held));
  const Tensor given({7}, dyadic(7, 9));
  EXPECT_OK(otr_engine_parameter_write(solo_.engine.get(), 0, OTR_VALUE_MASTER, &given));
  EXPECT_OK(otr_engine_release(solo_.engine.get(), &id, 1, nullptr))
      << "valid until the matching release or the next step, whichever comes first";
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Contributions of one pass add, declared or not, whatever their dtype.
#include <cmath>

#include "support.h"

namespace {

using namespace otr_test;

constexpr int64_t kElements = 600;

class Contributions : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Contributions, testing::ValuesIn(kKinds), name_of);

// Gives `given` contributions to a parameter that declared `declared`.
double norm_of(const Kind& kind, int32_t declared, int given, int accumulation) {
  Solo solo(config_of(kind, accumulation));
  auto options = param_options();
  options.contributions = declared;
  solo.engine.add("before", {kElements}, Values(kElements, 1));
  solo.engine.add("w", {kElements}, Values(kElements, 1), &options);
  solo.engine.add("after", {kElements}, Values(kElements, 1));
  solo.engine.commit();
  double norm = 0;
  for (int a = 0; a < accumulation; ++a) {
    const auto pass = solo.engine.begin();
    for (int i = 0; i < given; ++i) {
      Engine::add(pass, 1, {kElements}, Values(kElements, 1 << i));
      if (i == 0) {  // the buckets around it go out meanwhile
        Engine::add(pass, 0, {kElements}, Values(kElements, 1));
        Engine::add(pass, 2, {kElements}, Values(kElements, 1));
      }
    }
    Engine::end(pass);
    const auto report = solo.engine.step();
    norm = report.grad_norm;
  }
  return norm;
}

TEST_P(Contributions, DeclaredOrNotGiveTheSum) {
  for (const int32_t declared : {1, 2, 4}) {
    for (const int given : {1, 2, 3, 4, 6}) {
      for (const int accumulation : {1, 3}) {
        const double sum = accumulation * ((1 << given) - 1);
        const double others = accumulation * accumulation * 2.0;
        EXPECT_EQ(norm_of(GetParam(), declared, given, accumulation),
                  std::sqrt(kElements * (sum * sum + others)))
            << declared << " declared, " << given << " given, accumulation " << accumulation;
      }
    }
  }
}

TEST_P(Contributions, OfEveryDtypeAndStride) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {20, 30}, Values(kElements, 1));
  solo.engine.commit();
  const auto pass = solo.engine.begin();
  Values sum(kElements, 0);
  int64_t seed = 1;
  for (const char* dtype : {"float32", "bfloat16", "float16", "float64"}) {
    for (const Shape& strides : {Shape{}, Shape{1, 20}, Shape{-30, 1}, Shape{61, 2}}) {
      Values values = dyadic(kElements, seed++);
      for (double& v : values) v *= 2;  // multiples of 1/8: the sum of sixteen is exact in bfloat16
      const Tensor grad({20, 30}, values, dtype, strides);
      EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &grad, nullptr));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
  }
  double squares = 0;
  for (const double v : sum) squares += v * v;
  Engine::end(pass);
  const auto report = solo.engine.step();
  EXPECT_EQ(report.outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(report.grad_norm, std::sqrt(squares));
}

TEST_P(Contributions, AreCopied) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("w", {kElements}, Values(kElements, 1));
  solo.engine.commit();
  const auto pass = solo.engine.begin();
  {
    Tensor grad = Tensor::filled({kElements}, 2);
    EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &grad, nullptr));
    for (int64_t i = 0; i < kElements; ++i) set_value(grad.get(), i, NAN);
  }
  Engine::end(pass);
  EXPECT_EQ(solo.engine.step().grad_norm, std::sqrt(kElements * 4.0));
}

TEST_P(Contributions, ToScalarsAndEmptyParameters) {
  Solo solo(config_of(GetParam()));
  solo.engine.add("scalar", {}, {1});
  solo.engine.add("empty", {3, 0}, {});
  solo.engine.commit();
  const auto pass = solo.engine.begin();
  const Tensor scalar({}, {3});
  const Tensor empty({3, 0}, {});
  EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &scalar, nullptr));
  EXPECT_OK(otr_pass_add_grad(pass.get(), 1, &empty, nullptr));
  Engine::end(pass);
  const auto report = solo.engine.step();
  EXPECT_EQ(report.grad_norm, 3);
  EXPECT_EQ(report.updates, 1);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Gradients that lie in another place at each step, their norm before a step, and their factor.
#include <limits>

#include "flat.h"

namespace {

using namespace otr_test;

const char* const kAdam = R"({"params": {"lr": 0.01, "weight_decay": 0.1}})";

double norm(const Owned<otr_optimizer>& optimizer, const std::vector<otr_shard*>& shards) {
  double found = -1;
  EXPECT_OK(otr_optimizer_norm(optimizer.get(), shards.data(), static_cast<int64_t>(shards.size()),
                               &found));
  return found;
}

TEST(ShardGrads, OfAnotherPlaceAndDtypeHaveTheBitsOfThoseInOne) {
  constexpr int64_t kCount = 700;
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kAdam);
  Flat still(context.get(), irrational(kCount, 1), Values(kCount, 0));
  Tensor weights({kCount}, irrational(kCount, 1));
  otr_shard* shard = nullptr;
  ASSERT_OK(otr_shard_wrap(context.get(), &weights, nullptr, nullptr, &shard));
  const Owned<otr_shard> owned(shard);
  for (int t = 0; t < 4; ++t) {
    const Values values = irrational(kCount, 2 + t);
    const Tensor low({kCount}, values, "bfloat16");  // a new place in each step
    const Tensor full({kCount}, low.values());
    ASSERT_OK(otr_shard_set_grads(shard, t % 2 == 0 ? &low : &full));
    still.set_grads(low.values());
    step(optimizer, {shard});
    step(optimizer, {still.shard()});
    ASSERT_EQ(weights.values(), still.weights());
  }
}

TEST(ShardGrads, NoneRefuseAStepAndChangeNothing) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kAdam);
  Flat other(context.get(), Values(4, 1), Values(4, 2)),
      flat(context.get(), Values(4, 1), Values(4, 2));
  otr_shard* shards[] = {other.shard(), flat.shard()};
  ASSERT_OK(otr_shard_set_grads(flat.shard(), nullptr));
  double found = 3;
  EXPECT_FAILS(OTR_E_STATE, otr_optimizer_step(optimizer.get(), shards, 2, nullptr), "shard 1",
               "otr_shard_set_grads");
  EXPECT_FAILS(OTR_E_STATE, otr_optimizer_norm(optimizer.get(), shards, 2, &found), "shard 1");
  EXPECT_EQ(found, 0);
  EXPECT_EQ(other.weights(), Values(4, 1));
  EXPECT_OK(otr_optimizer_prepare(optimizer.get(), shards, 2)) << "states need no gradients";
}

TEST(ShardGrads, WrongOnesLeaveThoseThatWereThere) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kAdam);
  Flat flat(context.get(), Values(4, 1), Values(4, 2));
  const Tensor five = Tensor::filled({5}, 1), matrix = Tensor::filled({2, 2}, 1),
               wide = Tensor::filled({4}, 1, "float64");
  EXPECT_FAILS(OTR_E_SHAPE, otr_shard_set_grads(flat.shard(), &five), "grads has 5", "weights 4");
  EXPECT_FAILS(OTR_E_SHAPE, otr_shard_set_grads(flat.shard(), &matrix), "grads", "[2, 2]");
  EXPECT_FAILS(OTR_E_DTYPE, otr_shard_set_grads(flat.shard(), &wide), "grads", "float64");
  EXPECT_DOUBLE_EQ(norm(optimizer, {flat.shard()}), 4);
}

TEST(ShardGrads, NormBeforeAStepIsThatOfTheStep) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kAdam);
  Flat a(context.get(), Values(300, 1), irrational(300, 1)),
      b(context.get(), Values(7, 1), irrational(7, 2), "bfloat16", "bfloat16");
  double squares = 0;
  for (const Values& grads : {a.grads(), b.grads()}) {
    for (const double x : grads) squares += x * x;
  }
  const double found = norm(optimizer, {a.shard(), b.shard()});
  EXPECT_NEAR(found, std::sqrt(squares), 1e-12);
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "gradient_factor", -0.25));
  EXPECT_EQ(norm(optimizer, {a.shard(), b.shard()}), 0.25 * found);
  EXPECT_EQ(step(optimizer, {a.shard(), b.shard()}).grad_norm, 0.25 * found);
  a.set_grads(Values(300, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(norm(optimizer, {a.shard(), b.shard()}), HUGE_VAL);
  EXPECT_EQ(norm(optimizer, {}), 0);
}

TEST(ShardGrads, AFactorIsThatOfTheGradients) {
  constexpr double kFactor = -0.375;  // exact in every product with bfloat16 numbers
  const auto context = make_context();
  const char* const clipped =
      R"({"params": {"lr": 0.01, "weight_decay": 0.1}, "gradient_clipping": 0.5})";
  for (const char* config : {kAdam, clipped}) {
    const auto optimizer = make_optimizer(context.get(), config);
    const auto plain = make_optimizer(context.get(), config);
    EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "gradient_factor", kFactor));
    const Values grads = Tensor({300}, irrational(300, 4), "bfloat16").values();
    Values scaled = grads;
    for (double& x : scaled) x *= kFactor;
    Flat a(context.get(), irrational(300, 1), grads), b(context.get(), irrational(300, 1), scaled);
    for (int t = 0; t < 3; ++t) {
      const auto left = step(optimizer, {a.shard()}), right = step(plain, {b.shard()});
      EXPECT_EQ(left.clip_coefficient, right.clip_coefficient);
      EXPECT_EQ(left.grad_norm, right.grad_norm);
    }
    const Values found = a.weights(), expected = b.weights();
    for (size_t i = 0; i < found.size(); ++i) {
      // Without clipping the products are exact; with it factor and coefficient are rounded once.
      if (config == kAdam) {
        ASSERT_EQ(found[i], expected[i]);
      }
      ASSERT_NEAR(found[i], expected[i], 1e-7);
    }
  }
}

TEST(ShardGrads, AFactorOutOfRangeLeavesTheOldOne) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kAdam);
  Flat flat(context.get(), Values(4, 1), Values(4, 2));
  EXPECT_OK(otr_optimizer_set_value(optimizer.get(), "gradient_factor", 0.5));
  for (const double wrong : {0.0, HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_optimizer_set_value(optimizer.get(), "gradient_factor", wrong),
                 "gradient_factor", "0.5 stays");
  }
  EXPECT_DOUBLE_EQ(norm(optimizer, {flat.shard()}), 2);
}

}  // namespace

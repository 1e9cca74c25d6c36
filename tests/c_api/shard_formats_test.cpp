// SPDX-License-Identifier: Apache-2.0
// Shards with a split master and with 8-bit moments; values out and in, and a run that goes on from
// what was saved.
#include "flat.h"

namespace {

using namespace otr_test;

constexpr int64_t kCount = 256 * 3 + 100;

// bfloat16 weights with a remainder, and gradients, under a shard.
class Split {
 public:
  Split(otr_context* context, const Values& weights, const Values& grads)
      : weights_({kCount}, weights, "bfloat16"),
        remainder_({kCount}, Values(kCount, 0), "bfloat16"),
        grads_({kCount}, grads) {
    remainder_.get().dtype.code = OTR_DTYPE_UINT;
    otr_shard_options options;
    EXPECT_OK(otr_shard_options_init(&options, sizeof options));
    options.remainder = &remainder_;
    otr_shard* shard = nullptr;
    EXPECT_OK(otr_shard_wrap(context, &weights_, &grads_, &options, &shard));
    owner_.reset(shard);
    const Tensor exact({kCount}, weights);
    EXPECT_OK(otr_shard_write(shard, OTR_VALUE_MASTER, &exact));
  }
  [[nodiscard]] otr_shard* shard() const { return owner_.get(); }
  [[nodiscard]] Values published() const { return weights_.values(); }
  [[nodiscard]] Values read(int32_t value) const {
    const Tensor out = Tensor::filled({kCount}, 0);
    EXPECT_OK(otr_shard_read(shard(), value, &out));
    return out.values();
  }
  void set_grads(const Values& values) {
    for (int64_t i = 0; i < kCount; ++i) set_value(grads_.get(), i, values[static_cast<size_t>(i)]);
  }

 private:
  Tensor weights_, remainder_, grads_;
  Owned<otr_shard> owner_;
};

Values as_float32(const Values& values) {
  Values rounded = values;
  for (double& x : rounded) x = static_cast<double>(static_cast<float>(x));
  return rounded;
}

TEST(ShardFormats, ASplitMasterHasTheBitsOfAFloat32One) {
  const auto context = make_context();
  const auto split = make_optimizer(
      context.get(), R"({"params": {"lr": 1e-4}, "states": {"master": {"format": "split"}}})");
  const auto whole = make_optimizer(context.get(), R"({"params": {"lr": 1e-4}})");
  const Values start = as_float32(irrational(kCount, 1));
  Split halves(context.get(), start, irrational(kCount, 2));
  Flat flat(context.get(), start, irrational(kCount, 2));
  EXPECT_EQ(halves.read(OTR_VALUE_MASTER), start);
  for (int t = 0; t < 20; ++t) {
    const auto a = step(split, {halves.shard()}), b = step(whole, {flat.shard()});
    EXPECT_EQ(a.vanished, b.vanished);
    ASSERT_EQ(halves.read(OTR_VALUE_MASTER), flat.weights());
    const Values next = irrational(kCount, 3 + t);
    halves.set_grads(next);
    flat.set_grads(next);
  }
  for (const int32_t value : {OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
    EXPECT_EQ(halves.read(value), flat.state(value));
  }
  const Values published = halves.published(), exact = flat.weights();
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_LE(std::abs(published[i] - exact[i]), std::abs(exact[i]) / 256);
  }
}

TEST(ShardFormats, RefusesARemainderThatIsNone) {
  const auto context = make_context();
  const Tensor low = Tensor::filled({4}, 1, "bfloat16"), full = Tensor::filled({4}, 1);
  Tensor rest = Tensor::filled({4}, 0, "bfloat16"), five = Tensor::filled({5}, 0, "bfloat16");
  otr_shard_options options;
  ASSERT_OK(otr_shard_options_init(&options, sizeof options));
  otr_shard* shard = nullptr;
  const auto wrap = [&](const Tensor& weights, const Tensor& remainder) {
    options.remainder = &remainder;
    return otr_shard_wrap(context.get(), &weights, &low, &options, &shard);
  };
  EXPECT_FAILS(OTR_E_DTYPE, wrap(low, rest), "remainder", "uint16");
  rest.get().dtype.code = five.get().dtype.code = OTR_DTYPE_INT;
  EXPECT_FAILS(OTR_E_DTYPE, wrap(full, rest), "remainder", "float32");
  EXPECT_FAILS(OTR_E_SHAPE, wrap(low, five), "remainder", "5", "4");
  rest.get().dtype.bits = 32;
  EXPECT_FAILS(OTR_E_DTYPE, wrap(low, rest), "remainder", "32");
  rest.get().dtype.bits = 16;
  EXPECT_OK(wrap(low, rest));
  const Owned<otr_shard> owned(shard);
  const auto other =
      make_optimizer(context.get(), R"({"states": {"master": {"format": "bfloat16"}}})");
  EXPECT_FAILS(OTR_E_STATE, otr_optimizer_step(other.get(), &shard, 1, nullptr), "split",
               "bfloat16");
  Flat plain(context.get(), Values(4, 1), Values(4, 1), "bfloat16");
  const auto split =
      make_optimizer(context.get(), R"({"states": {"master": {"format": "split"}}})");
  EXPECT_FAILS(OTR_E_STATE, otr_optimizer_step(split.get(), plain.list(), 1, nullptr), "split",
               "bfloat16");
}

TEST(ShardFormats, BlocksTakeAQuarterAndAreReadAsNumbers) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(
      context.get(),
      R"({"states": {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}}})");
  Flat flat(context.get(), Values(kCount, 1), irrational(kCount, 2));
  step(optimizer, {flat.shard()});
  int64_t bytes = 0;
  EXPECT_OK(otr_shard_state_bytes(flat.shard(), &bytes));
  EXPECT_EQ(bytes, 2 * 4 * 260) << "four blocks, the last one in part";
  otr_tensor t;
  EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_shard_state(flat.shard(), OTR_VALUE_EXP_AVG, &t),
               "otr_shard_read");
  const Values m = flat.state(OTR_VALUE_EXP_AVG), v = flat.state(OTR_VALUE_EXP_AVG_SQ);
  const Values g = irrational(kCount, 2);
  for (size_t i = 0; i < g.size(); ++i) {  // stochastic: within one unit, 1/8
    ASSERT_NEAR(m[i], 0.1 * g[i], 0.1 * std::abs(g[i]) / 8 + 1e-6);
    ASSERT_NEAR(v[i], 0.001 * g[i] * g[i], 0.001 * g[i] * g[i] / 8 + 1e-12);
  }
}

TEST(ShardFormats, ReadAndWriteRefuseWhatDoesNotFit) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), "");
  Flat flat(context.get(), Values(4, 1), Values(4, 1));
  const Tensor four = Tensor::filled({4}, 0), five = Tensor::filled({5}, 0);
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_shard_read(flat.shard(), OTR_VALUE_EXP_AVG, &four),
               "otr_optimizer_prepare");
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_shard_write(flat.shard(), OTR_VALUE_EXP_AVG_SQ, &four), "step");
  EXPECT_OK(otr_optimizer_prepare(optimizer.get(), flat.list(), 1));
  EXPECT_EQ(flat.state(OTR_VALUE_EXP_AVG), Values(4, 0));
  EXPECT_OK(otr_shard_read(flat.shard(), OTR_VALUE_MASTER, &four));
  EXPECT_FAILS(OTR_E_SHAPE, otr_shard_read(flat.shard(), OTR_VALUE_MASTER, &five), "[5]", "[4]");
  EXPECT_FAILS(OTR_E_SHAPE, otr_shard_write(flat.shard(), OTR_VALUE_EXP_AVG, &five), "[5]", "[4]");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_shard_read(flat.shard(), OTR_VALUE_PUBLISHED, &four), "value");
  for (const int64_t wrong : {int64_t{-1}, INT64_MAX}) {
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_shard_set_step(flat.shard(), wrong), std::to_string(wrong));
  }
  int64_t updates = 7;
  EXPECT_OK(otr_shard_get_step(flat.shard(), &updates));
  EXPECT_EQ(updates, 0);
}

// Without clipping and check nothing depends on the norm, so it is not taken.
TEST(ShardFormats, WithoutTheCheckThereIsNoNorm) {
  const auto context = make_context();
  const auto checked = make_optimizer(context.get(), R"({"params": {"lr": 0.01}})");
  const auto unchecked =
      make_optimizer(context.get(), R"({"params": {"lr": 0.01}, "check_grad_overflow": false})");
  const auto clipped =
      make_optimizer(context.get(), R"({"gradient_clipping": 1, "check_grad_overflow": false})");
  Values grads = irrational(kCount, 2);
  Flat a(context.get(), irrational(kCount, 1), grads),
      b(context.get(), irrational(kCount, 1), grads);
  const auto want = step(checked, {a.shard()}), got = step(unchecked, {b.shard()});
  EXPECT_TRUE(std::isnan(got.grad_norm));
  EXPECT_EQ(got.updates, want.updates);
  EXPECT_EQ(b.weights(), a.weights());
  grads[7] = INFINITY;
  a.set_grads(grads);
  b.set_grads(grads);
  const Values before = a.weights();
  EXPECT_EQ(step(checked, {a.shard()}).outcome, OTR_STEP_SKIPPED);
  EXPECT_EQ(a.weights(), before);
  EXPECT_EQ(step(unchecked, {b.shard()}).outcome, OTR_STEP_APPLIED);
  EXPECT_TRUE(std::isnan(b.weights()[7]));
  EXPECT_FALSE(std::isnan(b.weights()[8]));
  const auto report = step(clipped, {a.shard()});
  EXPECT_EQ(report.outcome, OTR_STEP_SKIPPED)
      << "no coefficient comes of a norm that is not finite";
  EXPECT_EQ(report.nonfinite_count, 1);
  EXPECT_EQ(report.grad_norm, HUGE_VAL);
  EXPECT_EQ(a.weights(), before);
}

// What was read, written into new shards, goes on with the same bits: states, bias corrections and
// random streams are all there is.
TEST(ShardFormats, ARunGoesOnFromWhatWasSaved) {
  for (const char* const states :
       {R"({})", R"({"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}})",
        R"({"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}})"}) {
    const auto context = make_context();
    const std::string rule =
        std::string(R"({"seed": 3, "params": {"lr": 0.01}, "states": )") + states + "}";
    const auto first = make_optimizer(context.get(), rule);
    const auto second = make_optimizer(context.get(), rule);
    Split run(context.get(), irrational(kCount, 1), irrational(kCount, 2));
    for (int t = 0; t < 5; ++t) step(first, {run.shard()});
    Split again(context.get(), run.read(OTR_VALUE_MASTER), irrational(kCount, 2));
    otr_shard* const shard = again.shard();
    EXPECT_OK(otr_optimizer_prepare(second.get(), &shard, 1));
    for (const int32_t value : {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
      const Tensor saved({kCount}, run.read(value));
      EXPECT_OK(otr_shard_write(again.shard(), value, &saved));
      EXPECT_EQ(again.read(value), run.read(value));
    }
    int64_t updates = 0;
    EXPECT_OK(otr_shard_get_step(run.shard(), &updates));
    EXPECT_EQ(updates, 5);
    EXPECT_OK(otr_shard_set_step(again.shard(), updates));
    for (int t = 0; t < 3; ++t) {
      step(first, {run.shard()});
      step(second, {again.shard()});
      for (const int32_t value : {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
        ASSERT_EQ(again.read(value), run.read(value)) << states;
      }
    }
  }
}

}  // namespace

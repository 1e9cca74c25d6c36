// SPDX-License-Identifier: Apache-2.0
// otr_shard: what it wraps, its states, and slices that have the bits of the whole.
#include "flat.h"

namespace {

using namespace otr_test;

const char* const kStochastic =
    R"({"params": {"lr": 0.01}, "gradient_clipping": 1, "seed": 5, "states": {"master": {"format": "bfloat16"},
        "exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}})";
const char* const kBlocks =
    R"({"params": {"lr": 0.01}, "gradient_clipping": 1, "seed": 5,
        "states": {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}}})";
const char* const kFloat = R"({"params": {"lr": 0.01}, "gradient_clipping": 1})";

TEST(Shard, HasStatesAfterTheFirstStep) {
  const auto context = make_context();
  const auto optimizer =
      make_optimizer(context.get(), R"({"states": {"exp_avg_sq": {"format": "bfloat16"}}})");
  Flat flat(context.get(), Values(100, 1), Values(100, 1));
  otr_tensor t;
  int64_t bytes = 7;
  for (const int32_t value : {OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_shard_state(flat.shard(), value, &t), "step");
  }
  EXPECT_OK(otr_shard_state_bytes(flat.shard(), &bytes));
  EXPECT_EQ(bytes, 0);
  step(optimizer, {flat.shard()});
  EXPECT_OK(otr_shard_state_bytes(flat.shard(), &bytes));
  EXPECT_EQ(bytes, 100 * (4 + 2));
  otr_tensor m, v;
  ASSERT_OK(otr_shard_state(flat.shard(), OTR_VALUE_EXP_AVG, &m));
  ASSERT_OK(otr_shard_state(flat.shard(), OTR_VALUE_EXP_AVG_SQ, &v));
  EXPECT_EQ(m.ndim, 1);
  EXPECT_EQ(m.shape[0], 100);
  EXPECT_EQ(m.dtype.bits, 32);
  EXPECT_EQ(v.dtype.bits, 16);
  EXPECT_EQ(v.dtype.code, OTR_DTYPE_BFLOAT);
  const void* place = m.data;
  step(optimizer, {flat.shard()});
  ASSERT_OK(otr_shard_state(flat.shard(), OTR_VALUE_EXP_AVG, &m));
  EXPECT_EQ(m.data, place) << "it stays at its place";
  for (const int32_t value : {int32_t{OTR_VALUE_MASTER}, int32_t{OTR_VALUE_PUBLISHED}, -1, 4}) {
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_shard_state(flat.shard(), value, &t), std::to_string(value));
  }
}

TEST(Shard, OfNoElements) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), "");
  Flat flat(context.get(), {}, {});
  EXPECT_EQ(step(optimizer, {flat.shard()}).outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(flat.state(OTR_VALUE_EXP_AVG).size(), 0U);
  int64_t bytes = 7;
  EXPECT_OK(otr_shard_state_bytes(flat.shard(), &bytes));
  EXPECT_EQ(bytes, 0);
}

TEST(Shard, RefusesWhatItCannotWrap) {
  const auto context = make_context();
  otr_shard* shard = nullptr;
  const Tensor good = Tensor::filled({4}, 1);
  const auto expect = [&](int32_t status, const Tensor& weights, const Tensor& grads,
                          std::initializer_list<std::string_view> parts) {
    EXPECT_TRUE(
        failed(status, otr_shard_wrap(context.get(), &weights, &grads, nullptr, &shard), parts));
    EXPECT_EQ(shard, nullptr);
  };
  expect(OTR_E_SHAPE, Tensor::filled({2, 2}, 1), good, {"weights", "[2, 2]"});
  expect(OTR_E_SHAPE, good, Tensor::filled({2, 2}, 1), {"grads", "[2, 2]"});
  expect(OTR_E_SHAPE, Tensor::filled({}, 1), good, {"weights"});
  expect(OTR_E_SHAPE, good, Tensor::filled({5}, 1), {"5", "4"});
  expect(OTR_E_SHAPE, Tensor({4}, Values(4, 1), "float32", {2}), good, {"weights"});
  expect(OTR_E_SHAPE, Tensor({4}, Values(4, 1), "float32", {-1}), good, {"weights"});
  expect(OTR_E_DTYPE, Tensor::filled({4}, 1, "float64"), good, {"weights", "float64"});
  expect(OTR_E_DTYPE, good, Tensor::filled({4}, 1, "float64"), {"grads", "float64"});
  Tensor device = Tensor::filled({4}, 1);
  device.get().device.device_type = OTR_DEVICE_CUDA;
  expect(OTR_E_DEVICE, device, good, {"weights", "2"});
  Tensor missing = Tensor::filled({4}, 1);
  missing.get().data = nullptr;
  expect(OTR_E_ARGUMENT, good, missing, {"grads", "NULL"});
}

TEST(Shard, RefusesOptionsOutOfRange) {
  const auto context = make_context();
  otr_shard* shard = nullptr;
  const Tensor good = Tensor::filled({4}, 1), low = Tensor::filled({4}, 1, "bfloat16");
  otr_shard_options options;
  const auto reset = [&] { ASSERT_OK(otr_shard_options_init(&options, sizeof options)); };
  for (const int64_t first : {int64_t{-256}, int64_t{1}, int64_t{255}}) {
    reset();
    options.first_element = first;
    EXPECT_FAILS(OTR_E_ARGUMENT, otr_shard_wrap(context.get(), &good, &good, &options, &shard),
                 std::to_string(first), "256");
  }
  reset();
  options.published = &good;
  EXPECT_FAILS(OTR_E_DTYPE, otr_shard_wrap(context.get(), &good, &good, &options, &shard),
               "published", "float32");
  options.published = &low;
  EXPECT_FAILS(OTR_E_DTYPE, otr_shard_wrap(context.get(), &low, &good, &options, &shard),
               "published", "bfloat16");
  const Tensor five = Tensor::filled({5}, 1, "bfloat16");
  options.published = &five;
  EXPECT_FAILS(OTR_E_SHAPE, otr_shard_wrap(context.get(), &good, &good, &options, &shard),
               "published", "5", "4");
  EXPECT_EQ(shard, nullptr);
}

TEST(Shard, StructsAndStringsAreReadDuringTheCallOnly) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kFloat);
  std::vector<float> w(4, 1), g(4, 1);
  std::vector<uint16_t> p(4, 0);
  otr_shard* shard = nullptr;
  {
    auto shape = std::make_unique<int64_t>(4);
    std::string name = "a name that is longer than a small string";
    otr_tensor weights, grads, published;
    ASSERT_OK(otr_tensor_init(w.data(), "float32", 1, shape.get(), &weights));
    ASSERT_OK(otr_tensor_init(g.data(), "float32", 1, shape.get(), &grads));
    ASSERT_OK(otr_tensor_init(p.data(), "bfloat16", 1, shape.get(), &published));
    otr_shard_options options;
    ASSERT_OK(otr_shard_options_init(&options, sizeof options));
    options.name = name.c_str();
    options.published = &published;
    ASSERT_OK(otr_shard_wrap(context.get(), &weights, &grads, &options, &shard));
    *shape = 99;
    name = "x";
    weights = grads = published = otr_tensor{};
  }
  const Owned<otr_shard> owned(shard);
  step(optimizer, {shard});
  EXPECT_LT(w[3], 1);
  EXPECT_EQ(p[3], 0x3f7d) << "0.99 in bfloat16";
}

TEST(Shard, PublishesRoundedToNearest) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kFloat);
  const Tensor published = Tensor::filled({1000}, 0, "bfloat16");
  otr_shard_options options;
  ASSERT_OK(otr_shard_options_init(&options, sizeof options));
  options.published = &published;
  Flat flat(context.get(), irrational(1000, 1), irrational(1000, 2), "float32", "float32",
            &options);
  step(optimizer, {flat.shard()});
  const Values w = flat.weights(), p = published.values();
  for (size_t i = 0; i < w.size(); ++i) {
    EXPECT_EQ(p[i], static_cast<double>(round_to("bfloat16", w[i])));
  }
}

// The same bits however a parameter is cut, if cuts are multiples of 256.
TEST(Shard, SlicesHaveTheBitsOfTheWhole) {
  for (const char* const rule : {kFloat, kStochastic, kBlocks}) {
    const auto context = make_context();
    const char* dtype = rule == kFloat ? "float32" : "bfloat16";
    const auto one = make_optimizer(context.get(), rule);
    const auto many = make_optimizer(context.get(), rule);
    constexpr int64_t kCount = 256 * 300 + 100;
    const std::vector<int64_t> cuts = {0, 512, 256 * 5, 256 * 299, kCount};
    otr_shard_options options;
    ASSERT_OK(otr_shard_options_init(&options, sizeof options));
    options.name = "layer.weight";
    Flat whole(context.get(), irrational(kCount, 1), irrational(kCount, 2), dtype, dtype, &options);
    std::vector<std::unique_ptr<Flat>> slices;
    std::vector<otr_shard*> shards;
    const auto cut = [&](const Values& values, size_t i) {
      return Values(values.begin() + cuts[i], values.begin() + cuts[i + 1]);
    };
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      options.first_element = cuts[i];
      slices.push_back(std::make_unique<Flat>(context.get(), cut(irrational(kCount, 1), i),
                                              cut(irrational(kCount, 2), i), dtype, dtype,
                                              &options));
      shards.push_back(slices.back()->shard());
    }
    std::swap(shards[0], shards[2]);  // in any order
    for (int t = 0; t < 3; ++t) {
      const auto a = step(one, {whole.shard()});
      const auto b = step(many, shards);
      EXPECT_EQ(a.grad_norm, b.grad_norm);
      EXPECT_EQ(a.clip_coefficient, b.clip_coefficient);
      EXPECT_LT(a.clip_coefficient, 1);
      EXPECT_EQ(a.updates, b.updates);
      EXPECT_EQ(a.vanished, b.vanished);
      const Values next = irrational(kCount, 3 + t);
      whole.set_grads(next);
      for (size_t i = 0; i < slices.size(); ++i) {
        EXPECT_EQ(slices[i]->weights(), cut(whole.weights(), i));
        for (const int32_t value : {OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
          EXPECT_EQ(slices[i]->state(value), cut(whole.state(value), i));
        }
        slices[i]->set_grads(cut(next, i));
      }
    }
  }
}

// The random stream is a function of seed and name.
TEST(Shard, NamesAndSeedsChooseTheRandomNumbers) {
  const auto context = make_context();
  const auto run = [&](const char* name, int seed) {
    const auto optimizer = make_optimizer(
        context.get(), R"({"params": {"lr": 0.001}, "seed": )" + std::to_string(seed) +
                           R"(, "states": {"master": {"format": "bfloat16"}}})");
    otr_shard_options options;
    EXPECT_OK(otr_shard_options_init(&options, sizeof options));
    options.name = name;
    Flat flat(context.get(), Values(1000, 1), Values(1000, 1), "bfloat16", "float32", &options);
    step(optimizer, {flat.shard()});
    return flat.weights();
  };
  EXPECT_EQ(run("a", 1), run("a", 1));
  EXPECT_NE(run("a", 1), run("b", 1));
  EXPECT_NE(run("a", 1), run("a", 2));
  EXPECT_EQ(run(nullptr, 1), run("shard", 1)) << "the default name";
}

TEST(Shard, GoesOnWithAnotherOptimizerOfTheSameFormats) {
  const auto context = make_context();
  for (const char* json : {kFloat, kStochastic}) {
    const char* dtype = json == kFloat ? "float32" : "bfloat16";
    const auto same = make_optimizer(context.get(), json);
    Flat continuous(context.get(), dyadic(600, 1), dyadic(600, 2), dtype),
        handed(context.get(), dyadic(600, 1), dyadic(600, 2), dtype);
    for (int t = 0; t < 4; ++t) {
      step(same, {continuous.shard()});
      step(make_optimizer(context.get(), json), {handed.shard()});
    }
    EXPECT_EQ(handed.weights(), continuous.weights());
    EXPECT_EQ(handed.state(OTR_VALUE_EXP_AVG_SQ), continuous.state(OTR_VALUE_EXP_AVG_SQ));
  }
}

TEST(Shard, RefusesAnOptimizerOfOtherFormats) {
  const auto context = make_context();
  const auto wide = make_optimizer(context.get(), kFloat);
  const auto low =
      make_optimizer(context.get(), R"({"states": {"exp_avg": {"format": "bfloat16"}}})");
  const auto master =
      make_optimizer(context.get(), R"({"states": {"master": {"format": "bfloat16"}}})");
  Flat flat(context.get(), dyadic(600, 1), dyadic(600, 2)),
      fresh(context.get(), dyadic(600, 1), dyadic(600, 2));
  step(wide, {flat.shard()});
  const Values before = flat.weights();
  EXPECT_FAILS(OTR_E_STATE, otr_optimizer_step(low.get(), flat.list(), 1, nullptr), "float32",
               "bfloat16");
  EXPECT_FAILS(OTR_E_STATE, otr_optimizer_step(master.get(), flat.list(), 1, nullptr), "float32",
               "bfloat16");
  EXPECT_EQ(flat.weights(), before);
  // The refused call left the other shard of its list alone, too.
  otr_shard* both[2] = {fresh.shard(), flat.shard()};
  EXPECT_FAILS(OTR_E_STATE, otr_optimizer_step(low.get(), both, 2, nullptr), "1");
  otr_tensor t;
  int64_t bytes = 7;
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_shard_state(fresh.shard(), OTR_VALUE_EXP_AVG, &t), "step");
  EXPECT_OK(otr_shard_state_bytes(fresh.shard(), &bytes));
  EXPECT_EQ(bytes, 0);
  EXPECT_EQ(step(wide, {fresh.shard()}).outcome, OTR_STEP_APPLIED);
  EXPECT_EQ(step(wide, {flat.shard()}).applied_steps, 3) << "refused calls are no steps";
}

// What one step gives many small shards lies in their order, and one that goes leaves the others.
TEST(Shard, StatesOfSmallOnesFollowOneAnother) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kFloat);
  std::vector<Flat> flats, alone;
  std::vector<otr_shard*> shards;
  for (int i = 0; i < 40; ++i) {
    const int64_t count = i == 20 ? 300'000 : i == 30 ? 0 : 128 - i % 8;  // one large, one empty
    flats.emplace_back(context.get(), dyadic(count, 1), dyadic(count, 2 + i));
    alone.emplace_back(context.get(), dyadic(count, 1), dyadic(count, 2 + i));
    shards.push_back(flats.back().shard());
  }
  ASSERT_OK(otr_optimizer_prepare(optimizer.get(), shards.data(), 40));
  const auto place = [&](size_t i, int32_t value) {
    otr_tensor t;
    EXPECT_OK(otr_shard_state(shards[i], value, &t));
    return static_cast<const char*>(t.data);
  };
  for (const int32_t value : {OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
    for (size_t i = 0; i + 1 < 20; ++i) {
      EXPECT_EQ(place(i + 1, value), place(i, value) + 512) << i;
    }
    EXPECT_EQ(place(21, value), place(19, value) + 512) << "the large one is elsewhere";
    EXPECT_TRUE(place(20, value) < place(0, value) || place(20, value) > place(39, value));
  }
  for (size_t i = 0; i < 40; ++i) {
    int64_t bytes = -1;
    EXPECT_OK(otr_shard_state_bytes(shards[i], &bytes));
    EXPECT_EQ(bytes, static_cast<int64_t>(flats[i].weights().size()) * 8);
  }
  const auto without_clipping = make_optimizer(context.get(), R"({"params": {"lr": 0.01}})");
  for (int i = 0; i < 40; i += 2) flats[static_cast<size_t>(i)].destroy();
  shards.clear();
  for (size_t i = 1; i < 40; i += 2) shards.push_back(flats[i].shard());
  for (int t = 0; t < 3; ++t) {
    step(without_clipping, shards);
    for (size_t i = 1; i < 40; i += 2) step(without_clipping, {alone[i].shard()});
  }
  for (size_t i = 1; i < 40; i += 2) {
    EXPECT_EQ(flats[i].weights(), alone[i].weights()) << i;
    EXPECT_EQ(flats[i].state(OTR_VALUE_EXP_AVG_SQ), alone[i].state(OTR_VALUE_EXP_AVG_SQ)) << i;
  }
}

// The states of a flat buffer's slices begin half a page from it (core/device/neighbours.h); a call
// that is refused makes none.
TEST(Shard, StatesOfAFlatBuffersSlicesKeepApartFromIt) {
  const auto context = make_context();
  const auto optimizer = make_optimizer(context.get(), kFloat);
  constexpr int64_t kCount = 200'000, kShards = 24;  // 18 MiB in all
  const Tensor weights = Tensor::filled({kShards * kCount}, 1);
  const Tensor grads = Tensor::filled({kShards * kCount}, 1);
  std::vector<Owned<otr_shard>> owned;
  std::vector<otr_shard*> shards;
  for (int64_t i = 0; i < kShards; ++i) {
    otr_tensor w, g;
    int64_t shape = kCount;
    const auto part = [&](const Tensor& whole, otr_tensor* out) {
      return otr_tensor_init(static_cast<float*>(whole.get().data) + i * kCount, "float32", 1,
                             &shape, out);
    };
    ASSERT_OK(part(weights, &w));
    ASSERT_OK(part(grads, &g));
    shards.push_back(nullptr);
    ASSERT_OK(otr_shard_wrap(context.get(), &w, &g, nullptr, &shards.back()));
    owned.emplace_back(shards.back());
  }
  std::vector<otr_shard*> twice = shards;
  twice.push_back(shards[0]);
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_optimizer_prepare(optimizer.get(), twice.data(), kShards + 1),
               "0", "24", "same");
  otr_tensor m, v;
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_shard_state(shards[3], OTR_VALUE_EXP_AVG, &m), "step");
  ASSERT_OK(otr_optimizer_prepare(optimizer.get(), shards.data(), kShards));
  ASSERT_OK(otr_shard_state(shards[0], OTR_VALUE_EXP_AVG, &m));
  ASSERT_OK(otr_shard_state(shards[0], OTR_VALUE_EXP_AVG_SQ, &v));
  const auto line = [](const void* data) { return reinterpret_cast<uintptr_t>(data) / 64; };
  for (const otr_tensor& state : {m, v}) {
    EXPECT_EQ((line(state.data) - line(weights.get().data)) % 64, 32U);
  }
}

}  // namespace

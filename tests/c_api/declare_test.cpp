// SPDX-License-Identifier: Apache-2.0
// otr_engine_add_parameter, and asking for what was declared.
#include <cmath>

#include "support.h"

namespace {

using namespace otr_test;

TEST(Declare, IdsCountFromZero) {
  Solo solo("");
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(solo.engine.add(("p" + std::to_string(i)).c_str(), {1}, {1}), i);
    int64_t count = 0;
    EXPECT_OK(otr_engine_parameter_count(solo.engine.get(), &count));
    EXPECT_EQ(count, i + 1);
  }
}

TEST(Declare, NamesAreUniqueAndNotEmpty) {
  Solo solo("");
  solo.engine.add("w", {1}, {1});
  const Tensor value = Tensor::filled({1}, 1);
  int64_t id = 7;
  EXPECT_FAILS(OTR_E_DUPLICATE,
               otr_engine_add_parameter(solo.engine.get(), "w", &value, nullptr, &id), "\"w\"");
  EXPECT_EQ(id, 0);
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_engine_add_parameter(solo.engine.get(), "", &value, nullptr, &id), "name");
  EXPECT_EQ(solo.engine.add("v", {1}, {1}), 1) << "failures used an id";
}

TEST(Declare, UnknownNamesAndIdsAreNamed) {
  Solo solo("");
  int64_t id = 7;
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_id(solo.engine.get(), "layers.0.weight", &id),
               "layers.0.weight");
  solo.engine.add("layers.0.weight", {1}, {1});
  solo.engine.add("layers.0.bias", {1}, {1});
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_id(solo.engine.get(), "layers.0.wieght", &id),
               "layers.0.wieght", "\"layers.0.weight\"");
  EXPECT_EQ(id, 0);
  const char* name = nullptr;
  int32_t ndim = 0;
  const int64_t* shape = nullptr;
  for (const int64_t bad : {int64_t{2}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_name(solo.engine.get(), bad, &name),
                 std::to_string(bad));
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_shape(solo.engine.get(), bad, &ndim, &shape),
                 std::to_string(bad));
  }
}

TEST(Declare, NamesAndShapesStayValid) {
  Solo solo("");
  solo.engine.add("w", {3, 5}, Values(15, 0));
  const char* name = nullptr;
  const int64_t* shape = nullptr;
  int32_t ndim = 0;
  ASSERT_OK(otr_engine_parameter_name(solo.engine.get(), 0, &name));
  ASSERT_OK(otr_engine_parameter_shape(solo.engine.get(), 0, &ndim, &shape));
  for (int i = 0; i < 200; ++i) solo.engine.add(("filler." + std::to_string(i)).c_str(), {1}, {1});
  const auto check = [&] {
    EXPECT_STREQ(name, "w") << "valid as long as the engine";
    EXPECT_EQ(Shape(shape, shape + 2), (Shape{3, 5})) << "lives as long as the engine";
  };
  check();
  solo.engine.commit();
  solo.engine.pass({{0, Values(15, 1)}});
  solo.engine.step();
  check();
  EXPECT_OK(otr_engine_finalize(solo.engine.get()));
  check();
}

TEST(Declare, ScalarsHaveNoShape) {
  Solo solo("");
  solo.engine.add("s", {}, {2.5});
  int32_t ndim = 7;
  const int64_t one = 1;
  const int64_t* shape = &one;
  EXPECT_OK(otr_engine_parameter_shape(solo.engine.get(), 0, &ndim, &shape));
  EXPECT_EQ(ndim, 0);
  EXPECT_EQ(shape, nullptr) << "NULL for none";
  solo.engine.commit();
  EXPECT_EQ(solo.engine.read(0), (Values{2.5}));
}

TEST(Declare, OptionsOutOfRange) {
  Solo solo("");
  const Tensor value = Tensor::filled({1}, 1);
  int64_t id = 7;
  const auto expect = [&](int32_t status, const otr_param_options& o,
                          std::initializer_list<std::string_view> parts) {
    EXPECT_TRUE(
        failed(status, otr_engine_add_parameter(solo.engine.get(), "p", &value, &o, &id), parts));
    EXPECT_EQ(id, 0);
  };
  auto options = param_options();
  options.trainable = 2;
  expect(OTR_E_ARGUMENT, options, {"trainable", "2"});
  options = param_options();
  options.contributions = 0;
  expect(OTR_E_ARGUMENT, options, {"contributions", "0"});
  options = param_options();
  options.alias_of = -2;
  expect(OTR_E_ARGUMENT, options, {"alias_of", "-2"});
  options.alias_of = 0;
  expect(OTR_E_NOT_FOUND, options, {"0"});
  options = param_options();
  options.replicated = 1;
  expect(OTR_E_UNSUPPORTED, options, {"replicated", "1"});
  int64_t count = -1;
  EXPECT_OK(otr_engine_parameter_count(solo.engine.get(), &count));
  EXPECT_EQ(count, 0);
}

// A declaration that fails for memory is none: the next one has its id.
TEST(Declare, AFailureDeclaresNothing) {
  Solo solo("");
  float value = 0;
  int64_t huge[1] = {int64_t{1} << 55};
  otr_tensor t;
  ASSERT_OK(otr_tensor_init(&value, "float32", 1, huge, &t));
  int64_t id = 7;
  EXPECT_FAILS(OTR_E_OUT_OF_MEMORY,
               otr_engine_add_parameter(solo.engine.get(), "huge", &t, nullptr, &id), "bytes");
  EXPECT_EQ(id, 0);
  int64_t count = -1;
  EXPECT_OK(otr_engine_parameter_count(solo.engine.get(), &count));
  EXPECT_EQ(count, 0);
  EXPECT_EQ(solo.engine.add("huge", {1}, {1}), 0);
  solo.engine.commit();
  EXPECT_EQ(solo.engine.read(0), (Values{1}));
}

TEST(Declare, ValuesAreCopiedNow) {
  Solo solo("");
  Tensor value({3}, {1, 2, 3});
  int64_t id = -1;
  std::string name = "w";
  EXPECT_OK(otr_engine_add_parameter(solo.engine.get(), name.c_str(), &value, nullptr, &id));
  for (int64_t i = 0; i < 3; ++i) set_value(value.get(), i, -9);
  value.get().shape[0] = 77;
  name = "x";
  solo.engine.commit();
  EXPECT_EQ(solo.engine.read(0), (Values{1, 2, 3}));
}

TEST(Declare, WithoutDataTheValueIsZero) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Solo solo(config_of(kind));
    Shape shape{3, 2};
    otr_tensor t;
    ASSERT_OK(otr_tensor_init(nullptr, "bfloat16", 2, shape.data(), &t));
    int64_t id = -1;
    ASSERT_OK(otr_engine_add_parameter(solo.engine.get(), "w", &t, nullptr, &id));
    solo.engine.commit();
    EXPECT_EQ(solo.engine.read(0, OTR_VALUE_MASTER), Values(6, 0));
    EXPECT_EQ(solo.engine.read(0, OTR_VALUE_PUBLISHED), Values(6, 0));
    const Tensor value({3, 2}, {1, 2, 3, 4, 5, 6});
    EXPECT_OK(otr_engine_parameter_write(solo.engine.get(), 0, OTR_VALUE_MASTER, &value));
    EXPECT_EQ(solo.engine.read(0), value.values());
  }
}

// Every shape, stride order and dtype gives the same row-major values.
TEST(Declare, AnyStridesAndDtypes) {
  struct Layout {
    Shape shape, strides;
  };
  const std::vector<Layout> layouts = {{{3, 4}, {}},
                                       {{3, 4}, {1, 3}},
                                       {{3, 4}, {9, 2}},
                                       {{3, 4}, {-4, 1}},
                                       {{3, 4}, {-8, -2}},
                                       {{2, 3, 4}, {1, 2, 6}},
                                       {{2, 3, 4}, {12, 4, 1}},
                                       {{2, 3, 4}, {4, 8, 1}},
                                       {{5}, {3}},
                                       {{5}, {-1}},
                                       {{1, 5, 1}, {99, 1, 77}},
                                       {{1}, {-5}},
                                       {{}, {}},
                                       {{0}, {}},
                                       {{0, 3}, {7, 7}},
                                       {{2, 0, 3}, {}}};
  for (const char* dtype : {"float32", "bfloat16", "float16", "float64"}) {
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(std::string(dtype) + " " + testing::PrintToString(layout.shape) + " " +
                   testing::PrintToString(layout.strides));
      const Values values = dyadic(count_of(layout.shape), 3);
      const Tensor given(layout.shape, values, dtype, layout.strides);
      Solo solo("");
      int64_t id = -1;
      ASSERT_OK(otr_engine_add_parameter(solo.engine.get(), "w", &given, nullptr, &id));
      solo.engine.commit();
      EXPECT_EQ(solo.engine.read(0), values);
      // The same tensors to write with, to read into, and as a gradient.
      const Values other = dyadic(count_of(layout.shape), 4);
      const Tensor next(layout.shape, other, dtype, layout.strides);
      EXPECT_OK(otr_engine_parameter_write(solo.engine.get(), 0, OTR_VALUE_MASTER, &next));
      EXPECT_OK(otr_engine_parameter_read(solo.engine.get(), 0, OTR_VALUE_PUBLISHED, &given));
      EXPECT_EQ(given.values(), other);
      const auto pass = solo.engine.begin();
      EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &next, nullptr));
      Engine::end(pass);
      const auto report = solo.engine.step();
      double squares = 0;
      for (const double v : other) squares += v * v;
      EXPECT_EQ(report.grad_norm, std::sqrt(squares));
      // As an output's gradient.
      otr_pass* opened = nullptr;
      ASSERT_OK(otr_pass_begin(solo.engine.get(), &next, 1, nullptr, &opened));
      const Owned<otr_pass> owned(opened);
      otr_tensor output;
      ASSERT_OK(otr_pass_get_output_grad(opened, 0, &output));
      EXPECT_EQ(values_of(output), other);
      EXPECT_EQ(Shape(output.shape, output.shape + output.ndim), layout.shape);
      EXPECT_EQ(output.dtype.bits, 32);
    }
  }
}

// A stride of 0 repeats one value; only as an input.
TEST(Declare, RepeatedValues) {
  float value = 2.5F;
  int64_t shape[2] = {3, 2}, strides[2] = {0, 0};
  otr_tensor t;
  ASSERT_OK(otr_tensor_init(&value, "float32", 2, shape, &t));
  t.strides = strides;
  Solo solo("");
  int64_t id = -1;
  ASSERT_OK(otr_engine_add_parameter(solo.engine.get(), "w", &t, nullptr, &id));
  solo.engine.commit();
  EXPECT_EQ(solo.engine.read(0), Values(6, 2.5));
}

TEST(Declare, AFloat64OrFloat32ValueIsRoundedToNearestEven) {
  const Values fine = {1 + std::ldexp(1, -8), 1 + 3 * std::ldexp(1, -8),
                       1 + std::ldexp(1, -8) + std::ldexp(1, -20), -0.3};
  Solo bf16(config_of(kKinds[4]));
  const Tensor given({4}, fine, "float64");
  int64_t id = -1;
  ASSERT_OK(otr_engine_add_parameter(bf16.engine.get(), "w", &given, nullptr, &id));
  bf16.engine.commit();
  const Values published = bf16.engine.read(0, OTR_VALUE_PUBLISHED);
  const Values master = bf16.engine.read(0, OTR_VALUE_MASTER);
  for (size_t i = 0; i < fine.size(); ++i) {
    EXPECT_EQ(published[i], static_cast<double>(round_to("bfloat16", fine[i]))) << i;
    EXPECT_EQ(master[i], static_cast<double>(static_cast<float>(fine[i]))) << i;
  }
}

TEST(Alias, SharesValueGradientAndStates) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Solo solo(config_of(kind));
    solo.engine.add("embed", {2, 3}, dyadic(6, 1));
    auto options = param_options();
    options.alias_of = 0;
    int64_t head = -1, tail = -1;
    ASSERT_OK(otr_engine_add_parameter(solo.engine.get(), "head", nullptr, &options, &head));
    const Tensor ignored = Tensor::filled({2, 3}, 99);
    options.alias_of = head;  // of an alias
    ASSERT_OK(otr_engine_add_parameter(solo.engine.get(), "tail", &ignored, &options, &tail));
    EXPECT_EQ(head, 1);
    EXPECT_EQ(tail, 2);
    solo.engine.commit();
    EXPECT_EQ(solo.engine.shape_of(head), (Shape{2, 3}));
    EXPECT_EQ(solo.engine.read(tail), dyadic(6, 1)) << "an alias's initial is not read";
    const int64_t ids[2] = {0, 1};
    otr_tensor both[2];
    ASSERT_OK(otr_engine_acquire(solo.engine.get(), ids, 2, nullptr, both));
    EXPECT_EQ(both[0].data, both[1].data);

    solo.engine.pass({{0, Values(6, 1)}, {head, Values(6, 2)}, {tail, Values(6, 4)}});
    const auto report = solo.engine.step();
    EXPECT_EQ(report.grad_norm, std::sqrt(6 * 49.0))
        << "contributions of all names add, once in the norm";
    EXPECT_EQ(report.updates, 6);
    for (int32_t value = OTR_VALUE_MASTER; value <= OTR_VALUE_EXP_AVG_SQ; ++value) {
      EXPECT_EQ(solo.engine.read(0, value), solo.engine.read(tail, value));
    }
    const Tensor written = Tensor::filled({2, 3}, 0.5);
    EXPECT_OK(otr_engine_parameter_write(solo.engine.get(), head, OTR_VALUE_MASTER, &written));
    EXPECT_EQ(solo.engine.read(0), Values(6, 0.5));
  }
}

TEST(Alias, HasTheSameShape) {
  Solo solo("");
  solo.engine.add("w", {2, 3}, Values(6, 1));
  auto options = param_options();
  options.alias_of = 0;
  const Tensor other = Tensor::filled({3, 2}, 1);
  int64_t id = 7;
  EXPECT_FAILS(OTR_E_SHAPE, otr_engine_add_parameter(solo.engine.get(), "v", &other, &options, &id),
               "[3, 2]", "[2, 3]");
  EXPECT_EQ(id, 0);
  options.alias_of = 1;
  EXPECT_FAILS(OTR_E_NOT_FOUND,
               otr_engine_add_parameter(solo.engine.get(), "v", nullptr, &options, &id), "1");
}

TEST(Frozen, IsStoredAndTakesNoGradient) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Solo solo(config_of(kind));
    auto options = param_options();
    options.trainable = 0;
    solo.engine.add("table", {3}, {1, 2, 3}, &options);
    solo.engine.add("w", {3}, {1, 2, 3});
    solo.engine.commit();
    EXPECT_EQ(solo.engine.read(0, OTR_VALUE_PUBLISHED), (Values{1, 2, 3}));
    const Tensor t = Tensor::filled({3}, 1);
    for (const int32_t value : {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
      EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_parameter_read(solo.engine.get(), 0, value, &t),
                   "\"table\"", "frozen");
    }
    const auto pass = solo.engine.begin();
    otr_tensor slot;
    EXPECT_FAILS(OTR_E_STATE, otr_pass_add_grad(pass.get(), 0, &t, nullptr), "\"table\"", "frozen");
    EXPECT_FAILS(OTR_E_STATE, otr_pass_get_slot(pass.get(), 0, &slot), "\"table\"", "frozen");
    Engine::add(pass, 1, {3}, {1, 1, 1});
    Engine::end(pass);
    solo.engine.step();
    EXPECT_EQ(solo.engine.read(0, OTR_VALUE_PUBLISHED), (Values{1, 2, 3}));
    const Tensor written({3}, {4, 5, 6});
    EXPECT_OK(otr_engine_parameter_write(solo.engine.get(), 0, OTR_VALUE_MASTER, &written));
    EXPECT_EQ(solo.engine.read(0, OTR_VALUE_PUBLISHED), (Values{4, 5, 6}));
  }
}

}  // namespace

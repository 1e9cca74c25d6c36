// SPDX-License-Identifier: Apache-2.0
// otr_tensor_init, and the struct that is DLPack's.
#include <cmath>

#include "support.h"

namespace {

using namespace otr_test;

// DLPack's DLTensor on a 64-bit machine.
static_assert(sizeof(otr_tensor) == 48);
static_assert(offsetof(otr_tensor, data) == 0);
static_assert(offsetof(otr_tensor, device) == 8);
static_assert(offsetof(otr_tensor, ndim) == 16);
static_assert(offsetof(otr_tensor, dtype) == 20);
static_assert(offsetof(otr_tensor, shape) == 24);
static_assert(offsetof(otr_tensor, strides) == 32);
static_assert(offsetof(otr_tensor, byte_offset) == 40);
static_assert(OTR_DEVICE_CPU == 1 && OTR_DEVICE_CUDA == 2 && OTR_DEVICE_CUDA_HOST == 3);
static_assert(OTR_DTYPE_INT == 0 && OTR_DTYPE_UINT == 1 && OTR_DTYPE_FLOAT == 2 &&
              OTR_DTYPE_BFLOAT == 4);

otr_tensor garbage() {
  otr_tensor t;
  std::fill_n(reinterpret_cast<unsigned char*>(&t), sizeof t, static_cast<unsigned char>(0xab));
  return t;
}

void expect_cleared(const otr_tensor& t) {
  EXPECT_EQ(t.data, nullptr);
  EXPECT_EQ(t.shape, nullptr);
  EXPECT_EQ(t.strides, nullptr);
  EXPECT_EQ(t.ndim, 0);
  EXPECT_EQ(t.byte_offset, 0U);
}

TEST(TensorInit, FillsEveryField) {
  struct Row {
    const char* name;
    uint8_t code, bits;
  };
  for (const Row& row : {Row{"float32", OTR_DTYPE_FLOAT, 32}, Row{"bfloat16", OTR_DTYPE_BFLOAT, 16},
                         Row{"float16", OTR_DTYPE_FLOAT, 16}, Row{"float64", OTR_DTYPE_FLOAT, 64},
                         Row{"bool", OTR_DTYPE_BOOL, 8}, Row{"int8", OTR_DTYPE_INT, 8},
                         Row{"int64", OTR_DTYPE_INT, 64}, Row{"uint16", OTR_DTYPE_UINT, 16},
                         Row{"uint32", OTR_DTYPE_UINT, 32}}) {
    int64_t shape[2] = {3, 0};
    char memory[8];
    otr_tensor t = garbage();
    ASSERT_OK(otr_tensor_init(memory, row.name, 2, shape, &t));
    EXPECT_EQ(t.data, memory);
    EXPECT_EQ(t.device.device_type, OTR_DEVICE_CPU);
    EXPECT_EQ(t.device.device_id, 0);
    EXPECT_EQ(t.ndim, 2);
    EXPECT_EQ(t.dtype.code, row.code);
    EXPECT_EQ(t.dtype.bits, row.bits);
    EXPECT_EQ(t.dtype.lanes, 1);
    EXPECT_EQ(t.shape, shape) << "kept by reference";
    EXPECT_EQ(t.strides, nullptr);
    EXPECT_EQ(t.byte_offset, 0U);
  }
}

TEST(TensorInit, TakesNoDataAndNoShapeForAScalar) {
  otr_tensor t = garbage();
  EXPECT_OK(otr_tensor_init(nullptr, "float32", 0, nullptr, &t));
  EXPECT_EQ(t.ndim, 0);
  EXPECT_EQ(t.data, nullptr);
}

TEST(TensorInit, TakesUpToSixtyFourDimensions) {
  std::vector<int64_t> shape(65, 1);
  otr_tensor t = garbage();
  EXPECT_OK(otr_tensor_init(nullptr, "float64", 64, shape.data(), &t));
  EXPECT_EQ(t.ndim, 64);
  t = garbage();
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_tensor_init(nullptr, "float64", 65, shape.data(), &t), "65",
               "64");
  expect_cleared(t);
  t = garbage();
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_tensor_init(nullptr, "float64", -1, shape.data(), &t), "-1",
               "64");
  expect_cleared(t);
}

TEST(TensorInit, RefusesAndClears) {
  int64_t shape[2] = {3, -4};
  otr_tensor t = garbage();
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_tensor_init(nullptr, "float32", 2, shape, &t), "-4", "1");
  expect_cleared(t);
  t = garbage();
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_tensor_init(nullptr, "float32", 1, nullptr, &t), "shape");
  expect_cleared(t);
  t = garbage();
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_tensor_init(nullptr, nullptr, 0, nullptr, &t), "dtype");
  expect_cleared(t);
  for (const char* name : {"", "float", "Float32", "float32 ", "int4", "bf16"}) {
    t = garbage();
    EXPECT_FAILS(OTR_E_DTYPE, otr_tensor_init(nullptr, name, 1, shape, &t), name, "float32",
                 "bfloat16");
    expect_cleared(t);
  }
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_tensor_init(nullptr, "float32", 0, nullptr, nullptr),
               "out_tensor");
}

// One test for all functions that read a caller's tensor: they share one check.
class GivenTensor : public testing::Test {
 protected:
  GivenTensor() : solo_("") {
    solo_.engine.add("w", {2, 3}, Values(6, 1));
    solo_.engine.commit();
    pass_ = solo_.engine.begin();
  }
  // Every call that takes this tensor refuses it so.
  void expect(int32_t status, const otr_tensor& t, std::initializer_list<std::string_view> parts) {
    EXPECT_TRUE(failed(status, otr_pass_add_grad(pass_.get(), 0, &t, nullptr), parts));
    EXPECT_TRUE(failed(
        status, otr_engine_parameter_read(solo_.engine.get(), 0, OTR_VALUE_MASTER, &t), parts));
    EXPECT_TRUE(failed(
        status, otr_engine_parameter_write(other_.engine.get(), 0, OTR_VALUE_MASTER, &t), parts));
    otr_pass* pass = nullptr;
    EXPECT_TRUE(failed(status, otr_pass_begin(other_.engine.get(), &t, 1, nullptr, &pass), parts));
    EXPECT_EQ(pass, nullptr);
    int64_t id = 5;
    EXPECT_TRUE(failed(
        status, otr_engine_add_parameter(declaring_.engine.get(), "w", &t, nullptr, &id), parts));
    EXPECT_EQ(id, 0);
  }
  void SetUp() override {
    other_.engine.add("w", {2, 3}, Values(6, 1));
    other_.engine.commit();
  }
  Solo solo_, other_{""}, declaring_{""};
  Owned<otr_pass> pass_;
  Tensor good_ = Tensor::filled({2, 3}, 1);
};

TEST_F(GivenTensor, OfAnotherDevice) {
  otr_tensor t = good_.get();
  for (const int32_t device : {0, 2, 3, -1, 77}) {
    t.device.device_type = device;
    expect(OTR_E_DEVICE, t, {std::to_string(device), "CPU"});
  }
}

TEST_F(GivenTensor, OfAnotherDtype) {
  struct Row {
    otr_dtype dtype;
    const char* part;
  };
  for (const Row& row :
       {Row{{OTR_DTYPE_INT, 32, 1}, "int32"}, Row{{OTR_DTYPE_FLOAT, 8, 1}, "float8"},
        Row{{OTR_DTYPE_BFLOAT, 32, 1}, "bfloat32"}, Row{{77, 32, 1}, "code 77"},
        Row{{OTR_DTYPE_FLOAT, 32, 2}, "2 lanes"}, Row{{OTR_DTYPE_FLOAT, 32, 0}, "0 lanes"}}) {
    otr_tensor t = good_.get();
    t.dtype = row.dtype;
    expect(OTR_E_DTYPE, t, {row.part, "float32"});
  }
}

TEST_F(GivenTensor, WithAnImpossibleShape) {
  otr_tensor t = good_.get();
  t.ndim = -1;
  expect(OTR_E_SHAPE, t, {"-1"});
  t.ndim = 65;
  expect(OTR_E_SHAPE, t, {"65"});
  t = good_.get();
  int64_t negative[2] = {2, -3};
  t.shape = negative;
  expect(OTR_E_SHAPE, t, {"-3"});
  int64_t huge[3] = {INT64_MAX, INT64_MAX, INT64_MAX};
  t.shape = huge;
  t.ndim = 3;
  expect(OTR_E_SHAPE, t, {"elements"});
  t = good_.get();
  t.shape = nullptr;
  expect(OTR_E_ARGUMENT, t, {"shape", "NULL"});
}

TEST_F(GivenTensor, AtAnAddressItsElementsCannotHave) {
  otr_tensor t = good_.get();
  t.byte_offset = 2;
  expect(OTR_E_ARGUMENT, t, {"multiple", "4"});
}

TEST_F(GivenTensor, WithoutData) {
  otr_tensor t = good_.get();
  t.data = nullptr;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_pass_add_grad(pass_.get(), 0, &t, nullptr), "NULL", "6");
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_parameter_read(solo_.engine.get(), 0, 0, &t), "NULL",
               "6");
  EXPECT_FAILS(OTR_E_ARGUMENT,
               otr_engine_parameter_write(other_.engine.get(), 0, OTR_VALUE_MASTER, &t), "NULL",
               "6");
  otr_pass* pass = nullptr;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_pass_begin(other_.engine.get(), &t, 1, nullptr, &pass), "NULL",
               "6");
}

TEST_F(GivenTensor, OfAnotherShape) {
  for (const Shape& shape : {Shape{3, 2}, Shape{6}, Shape{2, 3, 1}, Shape{}, Shape{2, 0}}) {
    const Tensor other = Tensor::filled(shape, 1);
    EXPECT_FAILS(OTR_E_SHAPE, otr_pass_add_grad(pass_.get(), 0, &other, nullptr), "\"w\"",
                 "[2, 3]");
    EXPECT_FAILS(OTR_E_SHAPE, otr_engine_parameter_read(solo_.engine.get(), 0, 0, &other), "\"w\"",
                 "[2, 3]");
    EXPECT_FAILS(OTR_E_SHAPE,
                 otr_engine_parameter_write(other_.engine.get(), 0, OTR_VALUE_MASTER, &other),
                 "\"w\"", "[2, 3]");
  }
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Checkpoints out of and into other programs, by the header alone. (What is rounded, refused and
// left behind: tests/bindings/test_checkpoint_writer.py and test_exchange.py.)
#include <array>

#include "checkpoints.h"

namespace {

using namespace otr_test;

std::string listed(const Place& place) {
  std::string text(1000, ' ');
  size_t size = text.size();
  EXPECT_OK(otr_checkpoint_list(place.text(), text.data(), &size));
  return text.substr(0, size - 1);
}

class CheckpointWriter : public testing::Test {
 protected:
  void create(const char* tag, int64_t applied_steps) {
    otr_writer_options options;
    ASSERT_OK(otr_writer_options_init(&options, sizeof options));
    options.exp_avg = options.exp_avg_sq = "float32";
    options.applied_steps = applied_steps;
    ASSERT_OK(otr_checkpoint_writer_create(place_.text(), tag, &options, &writer_));
  }
  int32_t add(const char* name, const Shape& shape, const char* alias_of = nullptr) {
    otr_writer_param_options options;
    EXPECT_OK(otr_writer_param_options_init(&options, sizeof options));
    options.alias_of = alias_of;
    return otr_checkpoint_writer_add_parameter(writer_, name, shape.data(),
                                               static_cast<int64_t>(shape.size()), &options);
  }
  int32_t write(const char* name, int32_t value, int64_t first, const Values& values) {
    const Tensor tensor({static_cast<int64_t>(values.size())}, values);
    return otr_checkpoint_writer_write(writer_, name, value, first, &tensor);
  }
  ~CheckpointWriter() override { otr_checkpoint_writer_destroy(writer_); }

  const Place place_;
  otr_checkpoint_writer* writer_ = nullptr;
};

TEST_F(CheckpointWriter, WhatIsWrittenIsLoadedExportedAndImported) {
  create("a", 3);
  ASSERT_OK(add("w", {40, 30}));
  ASSERT_OK(add("tied", {1200}, "w"));
  ASSERT_OK(otr_checkpoint_writer_add_part(writer_, "place", "abc", 3));
  const Values weight = dyadic(1200, 1), moment = dyadic(1200, 2);
  for (const int64_t first : {600, 0}) {
    const Values part(weight.begin() + first, weight.begin() + first + 600);
    ASSERT_OK(write("w", OTR_VALUE_MASTER, first, part));
  }
  ASSERT_OK(write("w", OTR_VALUE_EXP_AVG, 0, moment));
  EXPECT_FAILS(OTR_E_STATE, otr_checkpoint_writer_finish(writer_), "w/exp_avg_sq", "not written");
  ASSERT_OK(write("w", OTR_VALUE_EXP_AVG_SQ, 0, Values(1200, 2)));
  EXPECT_EQ(listed(place_), R"({"latest":null,"tags":[]})");
  ASSERT_OK(otr_checkpoint_writer_finish(writer_));
  otr_checkpoint_writer_destroy(writer_);
  writer_ = nullptr;
  EXPECT_EQ(listed(place_), R"({"latest":"a","tags":["a"]})");

  otr_checkpoint* opened = nullptr;
  ASSERT_OK(otr_checkpoint_open(place_.text(), "a", &opened));
  EXPECT_OK(otr_checkpoint_verify(opened));
  otr_export_options exporting;
  ASSERT_OK(otr_export_options_init(&exporting, sizeof exporting));
  exporting.dtype = "bfloat16";
  const std::string file = place_ / "w.safetensors";
  EXPECT_OK(otr_checkpoint_export(opened, file.c_str(), &exporting));
  EXPECT_FAILS(OTR_E_DUPLICATE, otr_checkpoint_export(opened, file.c_str(), nullptr), file);
  otr_checkpoint_destroy(opened);
  otr_import_options importing;
  ASSERT_OK(otr_import_options_init(&importing, sizeof importing));
  ASSERT_OK(otr_checkpoint_import(file.c_str(), place_.text(), "b", &importing));
  EXPECT_EQ(listed(place_), R"({"latest":"b","tags":["a","b"]})");

  for (const char* tag : {"a", "b"}) {
    Solo solo(R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}})");
    solo.engine.add("w", {40, 30}, Values(1200, 7));
    solo.engine.commit();
    otr_load_options options;
    ASSERT_OK(otr_load_options_init(&options, sizeof options));
    options.weights_only = tag[0] == 'b' ? 1 : 0;
    options.strict = 1 - options.weights_only;
    // In "a" there is "tied", too: another name of the same values.
    ASSERT_OK(otr_engine_load(solo.engine.get(), place_.text(), tag, &options));
    EXPECT_EQ(solo.engine.read(0), weight);
  }
}

TEST_F(CheckpointWriter, NullsAreRefused) {
  otr_checkpoint_writer* out = nullptr;
  EXPECT_EQ(otr_checkpoint_writer_create(nullptr, "a", nullptr, &out), OTR_E_ARGUMENT);
  EXPECT_EQ(otr_checkpoint_writer_create(place_.text(), nullptr, nullptr, &out), OTR_E_ARGUMENT);
  EXPECT_EQ(otr_checkpoint_writer_create(place_.text(), "a", nullptr, nullptr), OTR_E_ARGUMENT);
  EXPECT_EQ(otr_checkpoint_writer_create("/no/such/folder", "a", nullptr, &out), OTR_E_NOT_FOUND);
  EXPECT_EQ(out, nullptr);
  create("a", -1);
  const int64_t extent = 3;
  const Tensor tensor({3}, Values(3, 1));
  const auto no = [](int32_t status) { EXPECT_EQ(status, OTR_E_ARGUMENT); };
  no(otr_checkpoint_writer_add_parameter(nullptr, "w", &extent, 1, nullptr));
  no(otr_checkpoint_writer_add_parameter(writer_, nullptr, &extent, 1, nullptr));
  no(otr_checkpoint_writer_add_parameter(writer_, "w", nullptr, 1, nullptr));
  no(otr_checkpoint_writer_add_parameter(writer_, "w", &extent, -1, nullptr));
  no(otr_checkpoint_writer_add_part(nullptr, "p", "x", 1));
  no(otr_checkpoint_writer_add_part(writer_, nullptr, "x", 1));
  no(otr_checkpoint_writer_add_part(writer_, "p", nullptr, 1));
  EXPECT_OK(otr_checkpoint_writer_add_part(writer_, "p", nullptr, 0));
  no(otr_checkpoint_writer_write(nullptr, "w", OTR_VALUE_MASTER, 0, &tensor));
  no(otr_checkpoint_writer_write(writer_, nullptr, OTR_VALUE_MASTER, 0, &tensor));
  no(otr_checkpoint_writer_write(writer_, "w", OTR_VALUE_MASTER, 0, nullptr));
  no(otr_checkpoint_writer_finish(nullptr));
  no(otr_checkpoint_import(nullptr, place_.text(), "b", nullptr));
  no(otr_checkpoint_import("w", nullptr, "b", nullptr));
  no(otr_checkpoint_import("w", place_.text(), nullptr, nullptr));
  no(otr_checkpoint_export(nullptr, "w", nullptr));
  no(otr_checkpoint_list(nullptr, nullptr, nullptr));
  no(otr_checkpoint_list(place_.text(), nullptr, nullptr));
  otr_writer_options options{};
  options.struct_size = 8;
  EXPECT_EQ(otr_checkpoint_writer_create(place_.text(), "b", &options, &out), OTR_E_ABI);
}

}  // namespace

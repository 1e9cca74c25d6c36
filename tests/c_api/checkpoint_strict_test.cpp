// SPDX-License-Identifier: Apache-2.0
// Which parameters have to be in a checkpoint, and which are taken: each row of the header's table.
#include "checkpoints.h"

namespace {

using namespace otr_test;

constexpr double kThere = 2, kHere = 7;
constexpr const char* kPlain = R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}})";

struct Choice {
  const char *include, *exclude;
};

class CheckpointStrict : public testing::Test {
 protected:
  CheckpointStrict() {
    make("same", {"a", "b"});
    make("more", {"a", "b", "c"});
    make("fewer", {"a"});
    make("other", {"z"});
  }
  void make(const char* tag, const std::vector<const char*>& names) {
    Solo solo(kPlain);
    for (const char* name : names) solo.engine.add(name, {5}, Values(5, kThere));
    solo.engine.commit();
    ASSERT_OK(save(solo.engine, place_, tag));
  }
  // What a load takes of a and b: "ab", "a", "b" or "", or the name of its status.
  std::string taken(const char* tag, int32_t weights_only, int32_t strict, const Choice& choice) {
    Solo solo(kPlain);
    for (const char* name : {"a", "b"}) solo.engine.add(name, {5}, Values(5, kHere));
    solo.engine.commit();
    otr_load_options o;
    EXPECT_OK(otr_load_options_init(&o, sizeof o));
    o.weights_only = weights_only;
    o.strict = strict;
    const char *const include = choice.include, *const exclude = choice.exclude;
    if (include != nullptr) o.include = &include, o.include_count = 1;
    if (exclude != nullptr) o.exclude = &exclude, o.exclude_count = 1;
    const int32_t status = otr_engine_load(solo.engine.get(), place_.text(), tag, &o);
    std::string names;
    for (const int64_t id : {0, 1}) {
      const double value = solo.engine.read(id)[0];
      EXPECT_TRUE(value == kThere || value == kHere) << value;
      if (value == kThere) names += id == 0 ? "a" : "b";
    }
    if (status == OTR_OK) return names;
    EXPECT_EQ(names, "") << "nothing has changed";
    return status == OTR_E_NOT_FOUND  ? "not found"
           : status == OTR_E_ARGUMENT ? "argument"
                                      : otr_last_error_message();
  }
  void expect(int32_t weights_only, int32_t strict, const Choice& choice, const char* same,
              const char* more, const char* fewer, const char* other) {
    SCOPED_TRACE(std::to_string(weights_only) + " " + std::to_string(strict));
    EXPECT_EQ(taken("same", weights_only, strict, choice), same);
    EXPECT_EQ(taken("more", weights_only, strict, choice), more);
    EXPECT_EQ(taken("fewer", weights_only, strict, choice), fewer);
    EXPECT_EQ(taken("other", weights_only, strict, choice), other);
  }

  const Place place_;
};

TEST_F(CheckpointStrict, EachCombination) {
  const char *const no = "not found", *const wrong = "argument";
  const Choice all{nullptr, nullptr}, a{"a", nullptr}, b{"b", nullptr}, not_b{nullptr, "b"},
      any{"*", nullptr};
  expect(0, 1, all, "ab", no, no, no);
  expect(0, 1, a, wrong, wrong, wrong, wrong);
  expect(0, 1, not_b, wrong, wrong, wrong, wrong);
  expect(0, 0, all, wrong, wrong, wrong, wrong);
  expect(0, 0, a, wrong, wrong, wrong, wrong);
  expect(1, 1, all, "ab", no, no, no);
  expect(1, 1, any, "ab", "ab", no, no);
  expect(1, 1, a, "a", "a", "a", no);
  expect(1, 1, b, "b", "b", no, no);
  expect(1, 1, not_b, "a", "a", "a", no);
  expect(1, 0, all, "ab", "ab", "a", no);
  expect(1, 0, any, "ab", "ab", "a", no);
  expect(1, 0, a, "a", "a", "a", no);
  expect(1, 0, b, "b", "b", no, no);
  expect(1, 0, not_b, "a", "a", "a", no);
}

}  // namespace

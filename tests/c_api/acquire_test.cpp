// SPDX-License-Identifier: Apache-2.0
// Acquire, release, prefetch.
#include "support.h"

namespace {

using namespace otr_test;

class Acquire : public testing::TestWithParam<Kind> {
 protected:
  Acquire() : solo_(config_of(GetParam())) {
    solo_.engine.add("matrix", {3, 4}, dyadic(12, 1));
    solo_.engine.add("empty", {0, 4}, {});
    solo_.engine.add("scalar", {}, {1.5});
    solo_.engine.commit();
  }
  int32_t acquire(const std::vector<int64_t>& ids, std::vector<otr_tensor>& out,
                  uint32_t flags = 0) {
    otr_call_info info;
    EXPECT_OK(otr_call_info_init(&info, sizeof info));
    info.flags = flags;
    out.assign(ids.size(), otr_tensor{});
    return otr_engine_acquire(solo_.engine.get(), ids.data(), static_cast<int64_t>(ids.size()),
                              &info, out.data());
  }
  int32_t release(const std::vector<int64_t>& ids) {
    return otr_engine_release(solo_.engine.get(), ids.data(), static_cast<int64_t>(ids.size()),
                              nullptr);
  }
  int64_t resident() {
    otr_memory_entry entries[64] = {};
    entries[0].struct_size = sizeof entries[0];
    size_t count = 64;
    EXPECT_OK(otr_engine_memory(solo_.engine.get(), entries, &count));
    return entries[count - 1].resident_bytes;
  }
  Solo solo_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, Acquire, testing::ValuesIn(kKinds), name_of);

TEST_P(Acquire, ShowsThePublishedFormat) {
  std::vector<otr_tensor> out;
  ASSERT_OK(acquire({0, 1, 2}, out));
  const bool wide = std::string_view(compute_dtype(GetParam())) == "float32";
  const Shape shapes[3] = {{3, 4}, {0, 4}, {}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(out[i].dtype.code, std::string_view(compute_dtype(GetParam())) == "bfloat16"
                                     ? OTR_DTYPE_BFLOAT
                                     : OTR_DTYPE_FLOAT);
    EXPECT_EQ(out[i].dtype.bits, wide ? 32 : 16);
    EXPECT_EQ(out[i].dtype.lanes, 1);
    EXPECT_EQ(out[i].device.device_type, OTR_DEVICE_CPU);
    EXPECT_EQ(Shape(out[i].shape, out[i].shape + out[i].ndim), shapes[i]);
  }
  EXPECT_EQ(values_of(out[0]), dyadic(12, 1));
  EXPECT_EQ(values_of(out[2]), (Values{1.5}));
  EXPECT_OK(release({0, 1, 2}));
}

TEST_P(Acquire, Float32IsACopyOfThePublishedValue) {
  solo_.engine.pass({{0, dyadic(12, 5)}});
  solo_.engine.step();
  const int64_t before = resident();
  std::vector<otr_tensor> wide, stored;
  ASSERT_OK(acquire({0, 1, 2}, wide, OTR_ACQUIRE_FLOAT32));
  ASSERT_OK(acquire({0}, stored));
  EXPECT_EQ(wide[0].dtype.bits, 32);
  EXPECT_EQ(wide[0].dtype.code, OTR_DTYPE_FLOAT);
  EXPECT_EQ(values_of(wide[0]), values_of(stored[0]));
  EXPECT_EQ(values_of(wide[0]), solo_.engine.read(0, OTR_VALUE_PUBLISHED));
  EXPECT_OK(release({0, 1, 2}));
  EXPECT_OK(release({0}));
  EXPECT_EQ(resident(), before) << "float32 copies are freed with the last release";
}

TEST_P(Acquire, Nests) {
  std::vector<otr_tensor> a, b;
  ASSERT_OK(acquire({0}, a, OTR_ACQUIRE_FLOAT32));
  ASSERT_OK(acquire({0, 0}, b, OTR_ACQUIRE_FLOAT32));
  EXPECT_OK(release({0}));
  EXPECT_EQ(values_of(a[0]), dyadic(12, 1));
  EXPECT_OK(release({0, 0}));
  EXPECT_FAILS(OTR_E_STATE, release({0}), "matrix", "not acquired");
}

TEST_P(Acquire, ReleaseOfWhatIsNotAcquired) {
  EXPECT_FAILS(OTR_E_STATE, release({0}), "matrix");
  std::vector<otr_tensor> out;
  ASSERT_OK(acquire({0}, out));
  EXPECT_FAILS(OTR_E_STATE, release({2}), "scalar");
  EXPECT_OK(release({0}));
}

// "A call in the wrong state returns OTR_E_STATE and changes nothing."
TEST_P(Acquire, AFailedReleaseReleasesNothing) {
  std::vector<otr_tensor> out;
  ASSERT_OK(acquire({0}, out));
  EXPECT_FAILS(OTR_E_STATE, release({0, 2}), "scalar");
  EXPECT_OK(release({0})) << "the failed call took it";
  ASSERT_OK(acquire({0}, out));
  EXPECT_FAILS(OTR_E_STATE, release({0, 0}), "matrix");
  EXPECT_OK(release({0}));
  ASSERT_OK(acquire({0}, out));
  EXPECT_FAILS(OTR_E_NOT_FOUND, release({0, 99}), "99");
  EXPECT_OK(release({0}));
}

TEST_P(Acquire, UnknownIds) {
  std::vector<otr_tensor> out;
  for (const int64_t bad : {int64_t{3}, int64_t{-1}, INT64_MIN}) {
    EXPECT_FAILS(OTR_E_NOT_FOUND, acquire({0, bad}, out), std::to_string(bad));
    EXPECT_FAILS(OTR_E_NOT_FOUND, release({bad}), std::to_string(bad));
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_prefetch(solo_.engine.get(), &bad, 1, nullptr),
                 std::to_string(bad));
  }
  EXPECT_FAILS(OTR_E_STATE, release({0}), "matrix");  // the failed acquire acquired nothing
}

TEST_P(Acquire, PrefetchChangesNothing) {
  const int64_t ids[2] = {0, 2};
  EXPECT_OK(otr_engine_prefetch(solo_.engine.get(), ids, 2, nullptr));
  otr_call_info info;
  ASSERT_OK(otr_call_info_init(&info, sizeof info));
  info.flags = OTR_ACQUIRE_FLOAT32;
  EXPECT_OK(otr_engine_prefetch(solo_.engine.get(), ids, 2, &info));
  EXPECT_FAILS(OTR_E_STATE, release({0}), "matrix");
}

TEST_P(Acquire, EndsWithTheStep) {
  std::vector<otr_tensor> out;
  const int64_t before = resident();
  ASSERT_OK(acquire({0, 2}, out, OTR_ACQUIRE_FLOAT32));
  solo_.engine.pass({{0, dyadic(12, 5)}});
  EXPECT_EQ(values_of(out[0]), dyadic(12, 1)) << "valid until the step";
  solo_.engine.step();
  EXPECT_FAILS(OTR_E_STATE, release({0}), "matrix");
  EXPECT_EQ(resident(), before);
  ASSERT_OK(acquire({0}, out));
  EXPECT_EQ(values_of(out[0]), solo_.engine.read(0, OTR_VALUE_PUBLISHED)) << "the new parameters";
  EXPECT_NE(values_of(out[0]), dyadic(12, 1));
  EXPECT_OK(release({0}));
}

TEST(AcquireWindow, SurvivesAStepThatOnlyAccumulates) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Solo solo(config_of(kind, 2));
    solo.engine.add("w", {3}, {1, 2, 3});
    solo.engine.commit();
    const int64_t id = 0;
    otr_tensor out;
    ASSERT_OK(otr_engine_acquire(solo.engine.get(), &id, 1, nullptr, &out));
    solo.engine.pass({{0, {1, 1, 1}}});
    EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_ACCUMULATED);
    EXPECT_EQ(values_of(out), (Values{1, 2, 3}));
    EXPECT_OK(otr_engine_release(solo.engine.get(), &id, 1, nullptr));
  }
}

}  // namespace

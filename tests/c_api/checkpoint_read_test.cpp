// SPDX-License-Identifier: Apache-2.0
// Values of a checkpoint that is looked at: those of the engine that saved it, in every format.
#include <array>

#include "checkpoints.h"

namespace {

using namespace otr_test;

// Of a checkpoint; float32 has all of them.
Values read_value(otr_checkpoint* opened, const std::string& name, int32_t value, int64_t first,
                  int64_t count) {
  std::vector<float> out(static_cast<size_t>(count), -77);
  EXPECT_OK(otr_checkpoint_read(opened, name.c_str(), value, first, count, out.data()));
  return {out.begin(), out.end()};
}

Values part_of(const Values& all, int64_t first, int64_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

void expect_reads(otr_checkpoint* opened, const Everything& saved) {
  for (int64_t id = 0; id < kParameters; ++id) {
    const std::string name = "p" + std::to_string(id);
    const auto count = static_cast<int64_t>(saved.at(std::to_string(id) + "/1").size());
    for (const int32_t value :
         {OTR_VALUE_MASTER, OTR_VALUE_PUBLISHED, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ}) {
      // Of a frozen parameter the published weight is the one that there is.
      const bool frozen_weight = id == 3 && value == OTR_VALUE_MASTER;
      const auto expected = saved.find(std::to_string(id) + "/" +
                                       std::to_string(frozen_weight ? OTR_VALUE_PUBLISHED : value));
      if (expected == saved.end()) {
        float out = 0;
        EXPECT_FAILS(OTR_E_NOT_FOUND, otr_checkpoint_read(opened, name.c_str(), value, 0, 1, &out),
                     name);
        continue;
      }
      SCOPED_TRACE(expected->first);
      EXPECT_EQ(read_value(opened, name, value, 0, count), expected->second);
      for (const auto& [first, n] : {std::pair<int64_t, int64_t>{0, 1},
                                     {1, count - 1},
                                     {3, 2},
                                     {count - 1, 1},
                                     {255, 258},
                                     {count, 0}}) {
        if (first + n > count) continue;
        EXPECT_EQ(read_value(opened, name, value, first, n), part_of(expected->second, first, n))
            << first << " " << n;
      }
    }
  }
}

TEST(CheckpointRead, GivesWhatTheEngineReads) {
  for (const Training& kind : kTrainings) {
    for (const Job& job : {Job{2, 1}, Job{1, 3}, Job{3, 2}}) {
      SCOPED_TRACE(kind.name);
      const Place place;
      Everything saved;
      run_ranks(job.world, [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, config(kind, job));
        declare(engine, 1);
        for (int64_t i = 0; i < 3; ++i) step(engine, i);
        ASSERT_OK(otr_engine_save(engine.get(), place.text(), "a", nullptr));
        Everything mine = everything(engine);
        EXPECT_OK(otr_engine_finalize(engine.get()));
        if (rank == 0) saved = std::move(mine);
      });
      otr_checkpoint* opened = nullptr;
      ASSERT_OK(otr_checkpoint_open(place.text(), "a", &opened));
      expect_reads(opened, saved);
      otr_checkpoint_destroy(opened);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// More than what is decoded at a time, begun and ended within leaves.
TEST(CheckpointRead, LongRunsBeginAndEndAnywhere) {
  constexpr int64_t kCount = (int64_t{1} << 21) + 77;
  const Place place;
  Solo solo(config(kTrainings[3], {1, 1}));
  const Values given = dyadic(kCount, 5);
  solo.engine.add("w", {kCount}, given);
  otr_param_options tied = param_options();
  tied.alias_of = 0;
  solo.engine.add("tied", {kCount}, given, &tied);
  solo.engine.commit();
  ASSERT_OK(otr_engine_save(solo.engine.get(), place.text(), "a", nullptr));
  otr_checkpoint* opened = nullptr;
  ASSERT_OK(otr_checkpoint_open(place.text(), nullptr, &opened));
  for (const char* name : {"w", "tied"}) {
    for (const int64_t first : {int64_t{0}, int64_t{100}, (int64_t{1} << 20) - 1}) {
      EXPECT_EQ(read_value(opened, name, OTR_VALUE_MASTER, first, kCount - first),
                part_of(given, first, kCount - first));
    }
  }
  otr_checkpoint_destroy(opened);
}

TEST(CheckpointRead, WrongUseNamesTheWayOut) {
  const Place place;
  Solo solo(config(kTrainings[0], {1, 0}));
  declare(solo.engine, 1);
  ASSERT_OK(otr_engine_save(solo.engine.get(), place.text(), "a", nullptr));
  otr_checkpoint* opened = nullptr;
  ASSERT_OK(otr_checkpoint_open(place.text(), nullptr, &opened));
  std::array<float, 8> out{};
  const auto read = [&](const char* name, int32_t value, int64_t first, int64_t count) {
    return otr_checkpoint_read(opened, name, value, first, count, out.data());
  };
  EXPECT_FAILS(OTR_E_NOT_FOUND, read("q", OTR_VALUE_MASTER, 0, 1), "\"q\"", "among its 4");
  EXPECT_FAILS(OTR_E_ARGUMENT, read("p2", OTR_VALUE_MASTER, 0, 8), "7 elements");
  EXPECT_FAILS(OTR_E_ARGUMENT, read("p2", OTR_VALUE_MASTER, 6, 2), "from element 6");
  EXPECT_FAILS(OTR_E_ARGUMENT, read("p2", OTR_VALUE_MASTER, -1, 1), "from element -1");
  EXPECT_FAILS(OTR_E_ARGUMENT, read("p2", OTR_VALUE_MASTER, INT64_MAX, 1), "7 elements");
  EXPECT_FAILS(OTR_E_ARGUMENT, read("p2", OTR_VALUE_MASTER, 0, -1), "-1");
  EXPECT_FAILS(OTR_E_ARGUMENT, read("p2", OTR_VALUE_GRAD, 0, 1), "value = 4");
  EXPECT_FAILS(OTR_E_ARGUMENT, read("p2", 99, 0, 1), "value = 99");
  EXPECT_EQ(read(nullptr, OTR_VALUE_MASTER, 0, 1), OTR_E_ARGUMENT);
  EXPECT_EQ(otr_checkpoint_read(opened, "p2", OTR_VALUE_MASTER, 0, 1, nullptr), OTR_E_ARGUMENT);
  EXPECT_EQ(otr_checkpoint_read(nullptr, "p2", OTR_VALUE_MASTER, 0, 1, out.data()), OTR_E_ARGUMENT);
  const fs::path path = place / "a/rank-00000.safetensors";
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_FAILS(OTR_E_CORRUPT, read("p0", OTR_VALUE_MASTER, 0, 1), "rank-00000.safetensors");
  otr_checkpoint_destroy(opened);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Checkpoints: what is saved comes back bit by bit, on any number of ranks, stage, mesh and format,
// and training goes on as if it had not been stopped.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "checkpoints.h"

namespace {

using namespace otr_test;

// Steps 0 to 2, a save, steps 3 to 7 of a run; what it was at the save and at the end.
struct Course {
  Everything saved, ended;
};
Course original(const Training& kind, const Job& shape, const Place& place) {
  Course run;
  run_ranks(shape.world, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config(kind, shape));
    declare(engine, 1);
    for (int64_t i = 0; i < 3; ++i) step(engine, i);
    ASSERT_OK(save(engine, place));
    Everything saved = everything(engine);
    for (int64_t i = 3; i < 8; ++i) step(engine, i);
    Everything ended = everything(engine);
    EXPECT_OK(otr_engine_finalize(engine.get()));
    if (rank == 0) run = {std::move(saved), std::move(ended)};
  });
  return run;
}

void expect_continues(const Training& kind, const Job& shape, const Place& place, const Course& run,
                      bool same_steps) {
  run_ranks(shape.world, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config(kind, shape));
    declare(engine, -0.5);
    step(engine, 90);  // what a load has to undo
    ASSERT_OK(load(engine, place));
    EXPECT_EQ(everything(engine), run.saved);
    for (int64_t i = 3; i < 8; ++i) step(engine, i);
    if (same_steps) {
      EXPECT_EQ(everything(engine), run.ended);
    }
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

const std::vector<Job>& shapes() {
  static const std::vector<Job> kAll{
      {1, 0},
      {1, 3},
      {2, 1},
      {3, 2},
      {2, 0},
      {3, 3, "", R"(, "share_parameters": false)"},
      {4, 3, "", R"(, "mesh": {"shard": 2})"},
      {4, 3, "", R"(, "mesh": {"shard": 2, "states": "all"})"},
      {4, 2, "", R"(, "share_parameters": false, "mesh": {"shard": 2})"},
      {7, 1},
  };
  return kAll;
}

// Sums of equal gradients of many ranks are exact for powers of two only.
bool same_steps(const Job& a, const Job& b) {
  const auto exact = [](int32_t world) { return (world & (world - 1)) == 0; };
  return a.world == b.world || (exact(a.world) && exact(b.world));
}

TEST(Checkpoint, BringsBackEveryBitAndGoesOn) {
  for (const Training& kind : kTrainings) {
    for (size_t i = 0; i < shapes().size(); ++i) {
      const Job& from = shapes()[i];
      if (from.stage == 0 && !kind.at_stage_0) continue;
      const Place place;
      const Course run = original(kind, from, place);
      ASSERT_FALSE(run.saved.empty());
      ASSERT_NE(run.saved, run.ended);
      for (size_t j = 0; j < shapes().size(); ++j) {
        if ((i * 3 + j) % 4 != 0 && i != j) continue;
        SCOPED_TRACE(std::string(kind.name) + " from " + std::to_string(i) + " to " +
                     std::to_string(j));
        const Job& to = shapes()[j];
        if (to.stage == 0 && !kind.at_stage_0) continue;
        expect_continues(kind, to, place, run, same_steps(from, to));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Halfway between two bfloat16 the halves of a split master are not what rounding to even gives.
TEST(Checkpoint, TiesOfASplitMasterComeBack) {
  const Place place;
  const Values ties(1500, 1 + std::ldexp(1.0, -8));
  for (const bool saves : {true, false}) {
    Solo solo(config(kTrainings[3], {1, 1}));
    declare(solo.engine, 1);
    if (saves) {
      const Tensor given({1500}, ties);
      ASSERT_OK(otr_engine_parameter_write(solo.engine.get(), 0, OTR_VALUE_MASTER, &given));
      ASSERT_OK(save(solo.engine, place));
    } else {
      ASSERT_OK(load(solo.engine, place));
    }
    EXPECT_EQ(solo.engine.read(0), ties);
    EXPECT_EQ(solo.engine.read(0, OTR_VALUE_PUBLISHED)[0], 1 + std::ldexp(1.0, -7));
  }
}

// Into another format values are rounded to nearest, once.
TEST(Checkpoint, OtherFormatsRoundToNearest) {
  const Place place;
  const Course run = original(kTrainings[0], {2, 1}, place);
  for (size_t k : {1U, 2U, 3U}) {
    run_ranks(3, [&](int32_t, otr_comm* comm) {
      Engine engine(comm, config(kTrainings[k], {3, 3}));
      declare(engine, -0.5);
      ASSERT_OK(load(engine, place));
      const Everything loaded = everything(engine);
      for (const auto& [name, values] : run.saved) {
        if (name.starts_with("3/")) continue;
        const auto is = [&](int32_t value) { return name.ends_with("/" + std::to_string(value)); };
        const bool moment = is(OTR_VALUE_EXP_AVG) || is(OTR_VALUE_EXP_AVG_SQ);
        if (k == 3 && moment) continue;  // relative to the block's largest
        const bool exact = k == 1 && !is(OTR_VALUE_PUBLISHED);
        for (size_t i = 0; i < values.size(); ++i) {
          const double here = loaded.at(name)[i];
          const double unit = std::ldexp(1.0, std::ilogb(values[i] == 0 ? 1e-30 : values[i]));
          if (exact) {
            ASSERT_EQ(here, values[i]) << name << i;
          } else {
            ASSERT_LE(std::abs(here - values[i]), unit / 256) << name << " " << i;
          }
        }
      }
    });
  }
}

TEST(Checkpoint, WeightsOfWhatIsInBoth) {
  const Place place;
  const Course run = original(kTrainings[0], {2, 1}, place);
  Solo solo(config(kTrainings[5], {1, 0}));  // SGD: no second moment
  Engine& engine = solo.engine;
  engine.add("p1", {40, 30}, Values(1200, 0));
  engine.add("other", {5}, Values(5, 3));
  otr_param_options frozen = param_options();
  frozen.trainable = 0;
  engine.add("p0", {1500}, Values(1500, 0), &frozen);  // it was trained
  engine.commit();
  otr_load_options options;
  ASSERT_OK(otr_load_options_init(&options, sizeof options));
  options.weights_only = 1;
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_load(engine.get(), place.text(), "a", &options),
               "lacks \"other\"", "no \"p2\", \"p3\"", "strict = 0");
  options.strict = 0;
  ASSERT_OK(otr_engine_load(engine.get(), place.text(), "a", &options));
  EXPECT_EQ(engine.read(0), run.saved.at("1/0"));
  EXPECT_EQ(engine.read(1), Values(5, 3));
  EXPECT_EQ(engine.read(2, OTR_VALUE_PUBLISHED), run.saved.at("0/0"));
}

TEST(Checkpoint, BytesOfTheHostRideAlong) {
  const Place place;
  run_ranks(3, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config(kTrainings[0], {3, 2}));
    declare(engine, 1);
    const std::string state = "state of rank " + std::to_string(rank);
    const std::array<otr_part, 2> parts{
        {{"rng", state.data(), state.size()}, {"nothing", nullptr, 0}}};
    otr_save_options options;
    ASSERT_OK(otr_save_options_init(&options, sizeof options));
    options.parts = parts.data();
    options.part_count = rank == 1 ? 0 : 2;
    ASSERT_OK(otr_engine_save(engine.get(), place.text(), "a", &options));
    otr_checkpoint* opened = nullptr;
    ASSERT_OK(otr_checkpoint_open(place.text(), nullptr, &opened));
    size_t size = 0;
    ASSERT_OK(otr_checkpoint_part(opened, 2, "rng", nullptr, &size));
    std::string read(size, ' ');
    ASSERT_OK(otr_checkpoint_part(opened, 2, "rng", read.data(), &size));
    EXPECT_EQ(read, "state of rank 2");
    ASSERT_OK(otr_checkpoint_part(opened, 0, "nothing", nullptr, &size));
    EXPECT_EQ(size, 0U);
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_checkpoint_part(opened, 1, "rng", nullptr, &size), "rank 1",
                 "rng");
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_checkpoint_part(opened, 3, "rng", nullptr, &size),
                 "ranks 0 to 2");
    EXPECT_OK(otr_checkpoint_verify(opened));
    std::string text(size_t{1} << 20, ' ');
    size = text.size();
    ASSERT_OK(otr_checkpoint_describe(opened, text.data(), &size));
    EXPECT_NE(text.find(R"("parts":[["rng","nothing"],[],["rng","nothing"]])"), std::string::npos)
        << text.substr(0, 200);
    otr_checkpoint_destroy(opened);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

std::vector<std::string> names_in(const Place& place) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(place.text())) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

TEST(Checkpoint, TheLatestOnesStay) {
  const Place place;
  Solo solo(config(kTrainings[0], {1, 0}));
  declare(solo.engine, 1);
  otr_save_options options;
  ASSERT_OK(otr_save_options_init(&options, sizeof options));
  options.keep_last = 2;
  for (int64_t i = 0; i < 5; ++i) {
    step(solo.engine, i);
    const std::string tag = "step" + std::to_string(9 - i);  // not in the order of names
    ASSERT_OK(otr_engine_save(solo.engine.get(), place.text(), tag.c_str(), &options));
  }
  EXPECT_EQ(names_in(place), (std::vector<std::string>{".lock", "latest", "step5", "step6"}));
  EXPECT_FAILS(OTR_E_DUPLICATE, save(solo.engine, place, "step6"), "step6");
  options.replace = 1;
  const Everything before = everything(solo.engine);
  ASSERT_OK(otr_engine_save(solo.engine.get(), place.text(), "step6", &options));
  step(solo.engine, 7);
  ASSERT_OK(load(solo.engine, place, "step6"));
  EXPECT_EQ(everything(solo.engine), before);
}

// ---- Damage and wrong use -----------------------------------------------------------------------

// Of a job whose checkpoint was damaged: every rank refuses with one text, nothing has changed.
void expect_refused(const Place& place, int32_t status, const std::string& word) {
  run_ranks(3, [&](int32_t, otr_comm* comm) {
    Engine engine(comm, config(kTrainings[3], {3, 2}));
    declare(engine, -0.5);
    step(engine, 1);
    const Everything before = everything(engine);
    EXPECT_TRUE(failed(status, load(engine, place, "a"), {"otr_engine_load", word}));
    EXPECT_EQ(everything(engine), before);
    step(engine, 2);
    EXPECT_OK(otr_engine_check(engine.get()));
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(Checkpoint, DamageIsFoundBeforeAnythingChanges) {
  const Place place;
  original(kTrainings[3], {2, 1}, place);
  const fs::path folder = place / "a";
  for (const char* name :
       {"rank-00000.safetensors", "rank-00001.safetensors", "index.safetensors", "manifest.json"}) {
    const fs::path path = folder / name;
    const std::string good = bytes_of(path);
    ASSERT_GT(good.size(), 100U);
    for (const size_t at : {size_t{3}, good.size() / 3, good.size() - 1}) {
      SCOPED_TRACE(std::string(name) + " byte " + std::to_string(at));
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x21);
      write_bytes(path, bad);
      run_ranks(2, [&](int32_t, otr_comm* comm) {
        Engine engine(comm, config(kTrainings[3], {2, 1}));
        declare(engine, -0.5);
        const Everything before = everything(engine);
        EXPECT_EQ(load(engine, place, "a"), OTR_E_CORRUPT) << otr_last_error_message();
        EXPECT_EQ(everything(engine), before);
        EXPECT_OK(otr_engine_check(engine.get()));
        EXPECT_OK(otr_engine_finalize(engine.get()));
      });
    }
    write_bytes(path, good.substr(0, good.size() - 8));
    expect_refused(place, OTR_E_CORRUPT, name);
    write_bytes(path, good);
  }
  // Files of ranks that were exchanged, or of another save.
  fs::rename(folder / "rank-00000.safetensors", folder / "x");
  fs::rename(folder / "rank-00001.safetensors", folder / "rank-00000.safetensors");
  fs::rename(folder / "x", folder / "rank-00001.safetensors");
  expect_refused(place, OTR_E_CORRUPT, "another checkpoint or rank");
  fs::rename(folder / "rank-00001.safetensors", folder / "rank-00000.safetensors");
  expect_refused(place, OTR_E_NOT_FOUND, "rank-00001.safetensors");
}

TEST(Checkpoint, ALaterVersionIsRefusedByName) {
  const Place place;
  original(kTrainings[3], {2, 1}, place);
  const fs::path path = place / "a" / "manifest.json";
  std::string text = bytes_of(path);
  const size_t at = text.find("\"version\": 1");
  ASSERT_NE(at, std::string::npos);
  text[at + 11] = '2';
  write_bytes(path, text);
  expect_refused(place, OTR_E_UNSUPPORTED, "version 2");
}

TEST(Checkpoint, WrongUseNamesTheWayOut) {
  const Place place;
  Solo solo(config(kTrainings[0], {1, 0}));
  Engine& engine = solo.engine;
  EXPECT_EQ(save(engine, place), OTR_E_STATE) << "before commit";
  EXPECT_EQ(load(engine, place), OTR_E_STATE);
  declare(engine, 1);
  EXPECT_FAILS(OTR_E_NOT_FOUND, load(engine, place), "no checkpoint");
  EXPECT_FAILS(OTR_E_NOT_FOUND, load(engine, place, "x"), "x");
  for (const char* tag : {"", "latest", "a/b", "..", ".a", "a b", "a\n"}) {
    EXPECT_EQ(save(engine, place, tag), OTR_E_ARGUMENT) << tag;
  }
  EXPECT_EQ(otr_engine_save(engine.get(), nullptr, "a", nullptr), OTR_E_ARGUMENT);
  EXPECT_EQ(otr_engine_save(engine.get(), place.text(), nullptr, nullptr), OTR_E_ARGUMENT);
  EXPECT_EQ(otr_engine_save(engine.get(), "/no/such/folder", "a", nullptr), OTR_E_NOT_FOUND)
      << otr_last_error_message();
  otr_save_options options;
  ASSERT_OK(otr_save_options_init(&options, sizeof options));
  options.keep_last = -1;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_save(engine.get(), place.text(), "a", &options),
               "keep_last = -1");
  options.keep_last = 0;
  options.part_count = 1;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_save(engine.get(), place.text(), "a", &options), "parts");
  otr_load_options wrong;
  ASSERT_OK(otr_load_options_init(&wrong, sizeof wrong));
  wrong.strict = 0;
  EXPECT_FAILS(OTR_E_ARGUMENT, otr_engine_load(engine.get(), place.text(), "a", &wrong),
               "weights_only = 1");
  otr_checkpoint* opened = nullptr;
  EXPECT_FAILS(OTR_E_NOT_FOUND, otr_checkpoint_open(place.text(), nullptr, &opened),
               "no checkpoint");
  EXPECT_EQ(opened, nullptr);
  otr_checkpoint_destroy(nullptr);
  // Gradients of a window are no part of a checkpoint.
  engine.pass({{0, dyadic(1500, 1)}});
  EXPECT_FAILS(OTR_E_STATE, save(engine, place), "otr_engine_step");
  EXPECT_FAILS(OTR_E_STATE, load(engine, place), "otr_engine_step");
  ASSERT_OK(otr_engine_step(engine.get(), nullptr));
  EXPECT_OK(save(engine, place));
  EXPECT_OK(otr_engine_check(engine.get()));
}

TEST(Checkpoint, RanksThatDifferAreNamed) {
  const Place place;
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config(kTrainings[0], {2, 1}));
    declare(engine, 1);
    EXPECT_FAILS(OTR_E_MISMATCH, save(engine, place, rank == 0 ? "a" : "b"), "rank 1");
    const Place other;
    const char* const directory = rank == 0 ? place.text() : "/no/such/folder";
    EXPECT_FAILS(OTR_E_NOT_FOUND, otr_engine_save(engine.get(), directory, "a", nullptr),
                 "on rank 1", "/no/such/folder");
    EXPECT_OK(otr_comm_barrier(comm));
    EXPECT_EQ(names_in(place), (std::vector<std::string>{".lock"})) << "nothing is left behind";
    EXPECT_OK(otr_comm_barrier(comm));
    EXPECT_OK(save(engine, place));
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

}  // namespace

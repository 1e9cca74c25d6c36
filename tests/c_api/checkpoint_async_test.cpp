// SPDX-License-Identifier: Apache-2.0
// Asynchronous saves: what they write is the training at the call, which goes on meanwhile.
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>

#include "checkpoints.h"

namespace {

using namespace otr_test;

int32_t save_beside(const Engine& engine, const Place& place, const char* tag,
                    const otr_part* part = nullptr) {
  otr_save_options options;
  EXPECT_OK(otr_save_options_init(&options, sizeof options));
  options.asynchronous = 1;
  options.parts = part;
  options.part_count = part == nullptr ? 0 : 1;
  return otr_engine_save(engine.get(), place.text(), tag, &options);
}

otr_save_status wait_save(const Engine& engine, double seconds = -1) {
  otr_save_status status = OTR_SAVE_STATUS_INIT;
  EXPECT_OK(otr_engine_wait_save(engine.get(), seconds, &status));
  return status;
}

// A rank's file behind its header, which names the save.
std::string data_of(const fs::path& folder, int32_t rank) {
  std::ifstream file(folder / ("rank-0000" + std::to_string(rank) + ".safetensors"),
                     std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  uint64_t length = 0;
  if (all.size() < sizeof length) return "";
  std::memcpy(&length, all.data(), sizeof length);
  return all.substr(sizeof length + length);
}

TEST(CheckpointAside, IsTheTrainingAtTheCall) {
  const std::vector<Job> jobs{{1, 0},
                              {2, 1},
                              {3, 3, "", R"(, "share_parameters": false)"},
                              {4, 2, "", R"(, "mesh": {"shard": 2})"}};
  for (const Training& kind : kTrainings) {
    for (const Job& job : jobs) {
      if (job.stage == 0 && !kind.at_stage_0) continue;
      SCOPED_TRACE(std::string(kind.name) + ", " + std::to_string(job.world) + " ranks");
      const Place place;
      Everything saved;
      run_ranks(job.world, [&](int32_t rank, otr_comm* comm) {
        Engine engine(comm, config(kind, job));
        declare(engine, 1);
        for (int64_t i = 0; i < 3; ++i) step(engine, i);
        const Everything now = everything(engine);
        ASSERT_OK(save(engine, place, "beside_nothing"));
        const std::string bytes(5, static_cast<char>('0' + rank));
        const otr_part part{"name", bytes.data(), bytes.size()};
        ASSERT_OK(save_beside(engine, place, "aside", &part));
        for (int64_t i = 3; i < 8; ++i) step(engine, i);
        const otr_save_status status = wait_save(engine);
        EXPECT_EQ(status.state, OTR_SAVE_DONE);
        EXPECT_EQ(status.bytes, status.bytes_written);
        EXPECT_GT(status.bytes, 0);
        EXPECT_GT(status.seconds, status.held_up_seconds);
        EXPECT_NE(everything(engine), now) << "the training went on";
        EXPECT_OK(otr_engine_finalize(engine.get()));
        if (rank == 0) saved = now;
      });
      for (int32_t rank = 0; rank < job.world; ++rank) {
        const std::string whole = data_of(place / "beside_nothing", rank);
        EXPECT_EQ(data_of(place / "aside", rank),
                  whole + std::string(5, static_cast<char>('0' + rank)));
      }
      run_ranks(2, [&](int32_t, otr_comm* comm) {
        Engine engine(comm, config(kind, {2, 1}));
        declare(engine, -0.5);
        ASSERT_OK(load(engine, place, "aside"));
        EXPECT_EQ(everything(engine), saved);
        EXPECT_OK(otr_engine_finalize(engine.get()));
      });
      if (HasFailure()) return;
    }
  }
}

// Files that are written past the system's cache, from where states are and from copies.
TEST(CheckpointAside, LargeFilesAreWhole) {
  constexpr int64_t kCount = (int64_t{3} << 20) + 300;
  const Place place;
  for (const char* formats :
       {"", R"("bf16": {"enabled": true}, "outrigger": {"states": {"master": {"format": "split"},
              "exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}}},)"}) {
    run_ranks(1, [&](int32_t, otr_comm* comm) {
      Engine engine(comm, "{" + std::string(formats) + R"("zero_optimization": {"stage": 0}})");
      engine.add("w", {kCount}, dyadic(kCount, 3));
      engine.commit();
      engine.pass({{0, dyadic(kCount, 5)}});
      ASSERT_OK(otr_engine_step(engine.get(), nullptr));
      otr_save_options options;
      ASSERT_OK(otr_save_options_init(&options, sizeof options));
      options.replace = 1;
      ASSERT_OK(otr_engine_save(engine.get(), place.text(), "now", &options));
      options.asynchronous = 1;
      ASSERT_OK(otr_engine_save(engine.get(), place.text(), "aside", &options));
      wait_save(engine);
      Tensor before = Tensor::filled({kCount}, 0), after = Tensor::filled({kCount}, 0);
      ASSERT_OK(otr_engine_parameter_read(engine.get(), 0, OTR_VALUE_EXP_AVG_SQ, &before.get()));
      engine.pass({{0, dyadic(kCount, 7)}});
      ASSERT_OK(otr_engine_step(engine.get(), nullptr));
      ASSERT_OK(load(engine, place, "aside"));
      ASSERT_OK(otr_engine_parameter_read(engine.get(), 0, OTR_VALUE_EXP_AVG_SQ, &after.get()));
      EXPECT_EQ(before.values(), after.values());
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
    const std::string now = data_of(place / "now", 0);
    EXPECT_GT(now.size(), 17'000'000U);
    EXPECT_TRUE(now == data_of(place / "aside", 0));
  }
}

// One of no bytes has its place where the next one begins.
TEST(CheckpointAside, EmptyPartsRideAlong) {
  const Place place;
  Solo solo(config(kTrainings[0], {1, 0}));
  declare(solo.engine, 1);
  const otr_part parts[] = {{"empty", "", 0}, {"more", "abc", 3}, {"none", "", 0}};
  otr_save_options options;
  ASSERT_OK(otr_save_options_init(&options, sizeof options));
  options.asynchronous = 1;
  options.parts = parts;
  options.part_count = 3;
  ASSERT_OK(otr_engine_save(solo.engine.get(), place.text(), "a", &options));
  wait_save(solo.engine);
  otr_checkpoint* opened = nullptr;
  ASSERT_OK(otr_checkpoint_open(place.text(), "a", &opened));
  EXPECT_OK(otr_checkpoint_verify(opened));
  for (const otr_part& part : parts) {
    size_t size = 100;
    std::string bytes(size, '?');
    EXPECT_OK(otr_checkpoint_part(opened, 0, part.name, bytes.data(), &size));
    EXPECT_EQ(bytes.substr(0, size), std::string(static_cast<const char*>(part.data), part.bytes));
  }
  otr_checkpoint_destroy(opened);
}

int64_t copies_of(const Engine& engine) {
  for (const otr_memory_entry& entry : ledger(engine.get())) {
    if (std::strcmp(entry.purpose, "checkpoint copies") == 0) return entry.resident_bytes;
  }
  return -1;
}

TEST(CheckpointAside, MemoryIsReservedOrComesWithTheFirst) {
  for (const bool reserved : {false, true}) {
    const Place place;
    run_ranks(2, [&](int32_t, otr_comm* comm) {
      const Job job{2, 1, "", reserved ? R"(, "checkpoint": {"asynchronous": true})" : ""};
      Engine engine(comm, config(kTrainings[0], job));
      declare(engine, 1);
      step(engine, 0);
      const int64_t at_commit = copies_of(engine);
      EXPECT_EQ(at_commit > 0, reserved);
      ASSERT_OK(save_beside(engine, place, "a"));
      wait_save(engine);
      const int64_t first = copies_of(engine);
      EXPECT_GT(first, 0);
      if (reserved) {
        EXPECT_EQ(first, at_commit);
      }
      ASSERT_OK(save_beside(engine, place, "b"));
      wait_save(engine);
      EXPECT_EQ(copies_of(engine), first) << "the next one uses the same";
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
}

// otr_engine_wait_save asks for one rank; the next call on all ranks is one for all.
TEST(CheckpointAside, AFailureIsToldOnAllRanksAlike) {
  for (const char* call : {"save", "load", "restore", "finalize"}) {
    SCOPED_TRACE(call);
    const Place place;
    const fs::path other = place / "other";
    ASSERT_TRUE(fs::create_directory(other));
    otr_snapshot* snapshots[2] = {};
    std::atomic<bool> failed{false};
    run_ranks(2, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, config(kTrainings[1], {2, 1}));
      declare(engine, 1);
      step(engine, 0);
      ASSERT_OK(save(engine, place));
      ASSERT_OK(otr_snapshot_create(&snapshots[rank]));
      ASSERT_OK(otr_engine_snapshot(engine.get(), snapshots[rank], nullptr));
      otr_save_options options;
      ASSERT_OK(otr_save_options_init(&options, sizeof options));
      options.asynchronous = 1;
      ASSERT_OK(otr_engine_save(engine.get(), other.c_str(), "aside", &options));
      if (rank == 0) std::ofstream(other / "aside") << "takes the name";
      if (rank == 0) failed = otr_engine_wait_save(engine.get(), -1, nullptr) != OTR_OK;
      ASSERT_OK(otr_comm_barrier(comm));
      const auto once_more = [&] {
        const std::string name(call);
        if (name == "save") return save(engine, place, "b");
        if (name == "load") return load(engine, place, "a");
        if (name == "restore") return otr_engine_restore(engine.get(), &snapshots[rank], 1);
        return otr_engine_finalize(engine.get());
      };
      const int32_t first = once_more();
      if (failed) {  // if not, the thread was quicker
        EXPECT_NE(first, OTR_OK);
        EXPECT_NE(std::string(otr_last_error_message()).find("asynchronous save"),
                  std::string::npos);
        EXPECT_OK(once_more()) << "it is told once, and the engine goes on";
      }
      if (std::string(call) != "finalize") {
        EXPECT_OK(otr_engine_finalize(engine.get()));
      }
    });
    for (otr_snapshot* snapshot : snapshots) otr_snapshot_destroy(snapshot);
  }
}

// Whatever a relative path means later.
TEST(CheckpointAside, StaysInTheFolderOfTheCall) {
  const Place place;
  const fs::path before = fs::current_path();
  fs::create_directory(place / "other");
  for (const int32_t asynchronous : {0, 1}) {
    Solo solo(config(kTrainings[1], {1, 0}));
    declare(solo.engine, 1);
    otr_save_options options;
    ASSERT_OK(otr_save_options_init(&options, sizeof options));
    options.asynchronous = asynchronous;
    fs::current_path(place / "");
    const int32_t status =
        otr_engine_save(solo.engine.get(), ".", asynchronous == 1 ? "aside" : "now", &options);
    fs::current_path(place / "other");
    EXPECT_OK(status);
    EXPECT_OK(otr_engine_wait_save(solo.engine.get(), -1, nullptr));
    fs::current_path(before);
  }
  EXPECT_TRUE(fs::exists(place / "aside"));
  EXPECT_TRUE(fs::is_empty(place / "other"));
  EXPECT_TRUE(data_of(place / "now", 0) == data_of(place / "aside", 0));
}

TEST(CheckpointAside, WrongUseNamesTheWayOut) {
  const Place place;
  run_ranks(2, [&](int32_t rank, otr_comm* comm) {
    Engine engine(comm, config(kTrainings[0], {2, 2}));
    declare(engine, 1);
    otr_save_options options;
    ASSERT_OK(otr_save_options_init(&options, sizeof options));
    options.when_busy = 7;
    EXPECT_EQ(otr_engine_save(engine.get(), place.text(), "a", &options), OTR_E_ARGUMENT);
    EXPECT_NE(std::string(otr_last_error_message()).find("when_busy = 7"), std::string::npos)
        << std::string(otr_last_error_message());
    options.when_busy = OTR_SAVE_REFUSE;
    options.asynchronous = 2;
    EXPECT_EQ(otr_engine_save(engine.get(), place.text(), "a", &options), OTR_E_ARGUMENT);
    options.asynchronous = rank;
    EXPECT_EQ(otr_engine_save(engine.get(), place.text(), "a", &options), OTR_E_MISMATCH);
    otr_save_status status{};
    EXPECT_EQ(otr_engine_wait_save(engine.get(), 0, &status), OTR_E_ABI);
    EXPECT_OK(otr_engine_finalize(engine.get()));
  });
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Saves to a slow disk: other ranks wait for longer than a communicator does, what is reported is
// of this save, and an engine that goes gives it up.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "c_api/src/handles.h"
#include "core/engine/open_checkpoint.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"
#include "tests/engine/ranks.h"

namespace outrigger::test {
namespace {

using checkpoint::Files;
using checkpoint::test::FaultyFiles;
using checkpoint::test::Operation;
using checkpoint::test::quick_files;
using checkpoint::test::TemporaryFolder;
using std::chrono::milliseconds;

// Master and moments of a rank are four writes of an asynchronous save, and more of another one.
constexpr int64_t kPerRank = 1'200'000;

// Sleeps in each write.
FaultyFiles::Plan slow(milliseconds pause) {
  return [pause](int64_t, Operation called) {
    if (called == Operation::write) std::this_thread::sleep_for(pause);
    return 0;
  };
}

otr_engine* make_engine(otr_comm* comm, int64_t count) {
  otr_engine* engine = nullptr;
  NEED(otr_engine_create(comm, R"({"zero_optimization": {"stage": 2}})", &engine));
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1021) - 300;
  otr_tensor initial;
  NEED(otr_tensor_init(values.data(), "float32", 1, &count, &initial));
  int64_t id = 0;
  NEED(otr_engine_add_parameter(engine, "w", &initial, nullptr, &id));
  NEED(otr_engine_commit(engine));
  return engine;
}

void save_to(otr_engine* engine, const TemporaryFolder& folder, const char* tag, Files& files,
             bool asynchronous) {
  engine::SaveOptions options;
  options.asynchronous = asynchronous;
  c_api::get(engine, "engine")->save(folder.path(), tag, options, files);
}

void verify(const TemporaryFolder& folder, const char* tag) {
  engine::OpenCheckpoint opened(folder.path(), tag);
  opened.verify();
}

class SlowSave : public testing::TestWithParam<bool> {};  // asynchronous

TEST_P(SlowSave, OtherRanksWaitForLongerThanTheirTimeout) {
  constexpr double kTimeout = 4;
  TemporaryFolder folder;
  const auto results = run_ranks(
      Provider::threads, 2,
      [&](int32_t rank, otr_context*, otr_comm* comm) {
        otr_engine* const engine = make_engine(comm, 2 * kPerRank);
        FaultyFiles slowed(slow(milliseconds(1200)));
        Files& files = rank == 1 ? static_cast<Files&>(slowed) : quick_files();
        const auto began = std::chrono::steady_clock::now();
        save_to(engine, folder, "a", files, GetParam());
        c_api::get(engine, "engine")->wait_save(-1);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        EXPECT_GT(took.count(), kTimeout) << "slow enough to tell";
        NEED(otr_engine_finalize(engine));
        otr_engine_destroy(engine);
        return Bytes();
      },
      kTimeout);
  for (const RankResult& result : results) EXPECT_EQ(result.error, "");
  verify(folder, "a");
}

INSTANTIATE_TEST_SUITE_P(Both, SlowSave, testing::Bool());

// Alone, too, where there is no other rank to hear of it from.
TEST(SlowSaveAside, IsGivenUpWithItsEngine) {
  TemporaryFolder folder;
  std::atomic<int> writes{0};
  FaultyFiles slowed([&](int64_t, Operation called) {
    if (called != Operation::write) return 0;
    ++writes;
    std::this_thread::sleep_for(milliseconds(400));
    return 0;
  });
  const auto results = run_ranks(Provider::self, 1, [&](int32_t, otr_context*, otr_comm* comm) {
    otr_engine* const engine = make_engine(comm, kPerRank);
    save_to(engine, folder, "old", quick_files(), false);
    save_to(engine, folder, "new", slowed, true);
    otr_engine_destroy(engine);
    return Bytes();
  });
  EXPECT_EQ(results.at(0).error, "");
  EXPECT_LT(writes, 4) << "who goes does not wait for the whole file";
  EXPECT_EQ(folder.open().names(), (std::vector<std::string>{".lock", "latest", "old"}));
  verify(folder, "");
}

TEST(SlowSaveAside, TheStatusIsThatOfThisSave) {
  TemporaryFolder folder;
  FaultyFiles slowed(slow(milliseconds(300)));
  const auto results = run_ranks(Provider::self, 1, [&](int32_t, otr_context*, otr_comm* comm) {
    otr_engine* const handle = make_engine(comm, kPerRank);
    engine::Engine& engine = *c_api::get(handle, "engine");
    save_to(handle, folder, "a", quick_files(), true);
    const engine::Saver::Status first = engine.wait_save(-1);
    EXPECT_EQ(first.written, first.bytes);
    save_to(handle, folder, "b", slowed, true);
    const engine::Saver::Status early = engine.wait_save(0);
    EXPECT_EQ(early.state, engine::Saver::State::under_way);
    EXPECT_EQ(early.written, 0) << "none of it is written yet";
    const engine::Saver::Status last = engine.wait_save(-1);
    EXPECT_EQ(last.state, engine::Saver::State::done);
    EXPECT_EQ(last.written, last.bytes);
    // The lock is given back before the end is told.
    save_to(handle, folder, "c", quick_files(), false);
    NEED(otr_engine_finalize(handle));
    otr_engine_destroy(handle);
    return Bytes();
  });
  EXPECT_EQ(results.at(0).error, "");
  for (const char* tag : {"a", "b", "c"}) verify(folder, tag);
}

// Takes direct writes of whatever begins a page of memory, and refuses others.
class DirectDisk : public FaultyFiles {
 public:
  DirectDisk() : FaultyFiles([](int64_t, Operation) { return 0; }) {}
  ssize_t write(int fd, const void* data, size_t bytes, off_t offset) override {
    constexpr uintptr_t kPage = 4096;
    if (direct_ &&
        (reinterpret_cast<uintptr_t>(data) | bytes | static_cast<uintptr_t>(offset)) % kPage != 0) {
      ++odd_;
    }
    writes_ += direct_ ? 1 : 0;
    return FaultyFiles::write(fd, data, bytes, offset);
  }
  int set_direct(int /*fd*/, bool direct) override {
    direct_ = direct;
    return 0;
  }
  [[nodiscard]] int odd() const { return odd_; }
  [[nodiscard]] int writes() const { return writes_; }

 private:
  std::atomic<bool> direct_{false};
  std::atomic<int> odd_{0}, writes_{0};
};

TEST(SlowSaveAside, LargeFilesGoPastTheCacheFromWholePages) {
  TemporaryFolder folder;
  for (const bool asynchronous : {false, true}) {
    DirectDisk disk;
    const auto results = run_ranks(Provider::self, 1, [&](int32_t, otr_context*, otr_comm* comm) {
      otr_engine* const engine = make_engine(comm, 2 * kPerRank);
      save_to(engine, folder, asynchronous ? "a" : "b", disk, asynchronous);
      c_api::get(engine, "engine")->wait_save(-1);
      NEED(otr_engine_finalize(engine));
      otr_engine_destroy(engine);
      return Bytes();
    });
    EXPECT_EQ(results.at(0).error, "");
    EXPECT_GE(disk.writes(), 6);
    EXPECT_EQ(disk.odd(), 0);
    verify(folder, asynchronous ? "a" : "b");
  }
}

}  // namespace
}  // namespace outrigger::test

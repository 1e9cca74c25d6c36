// SPDX-License-Identifier: Apache-2.0
// Power is lost after any call of a save, and the disk keeps as little as it may.
#include <gtest/gtest.h>

#include <functional>

#include "core/base/text.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/recorder.h"
#include "tests/checkpoint/save.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr Loss kLosses[] = {{false, false}, {false, true}, {true, false}, {true, true}};

// Whatever is lost now, a whole checkpoint is left.
void expect_whole(const Recorder& disk, const Scenario& scenario) {
  for (const Loss& loss : kLosses) {
    if (testing::Test::HasFailure()) return;
    const TemporaryFolder left;
    disk.materialise(left.path(), loss);
    EXPECT_EQ(fault_after(left.path(), scenario), "")
        << format_text("names are lost above: {}, inside: {}", loss.top_names, loss.inner_names);
  }
}

class PowerLoss : public testing::TestWithParam<Scenario> {};

TEST_P(PowerLoss, LeavesAWholeCheckpoint) {
  const TemporaryFolder folder;
  prepare(folder.path(), GetParam());
  int64_t moments = 0;
  const Recorder* disk = nullptr;
  Recorder files(folder.path(), [&] {
    SCOPED_TRACE(++moments);
    expect_whole(*disk, GetParam());
  });
  disk = &files;
  save(files, folder.path(), GetParam().after);
  EXPECT_GT(moments, 20);
}

TEST_P(PowerLoss, WhatWasReportedStays) {
  const TemporaryFolder folder;
  prepare(folder.path(), GetParam());
  Recorder files(folder.path(), [] {});
  const Save& after = GetParam().after;
  const auto expect_kept = [&](bool as_latest) {
    for (const Loss& loss : kLosses) {
      const TemporaryFolder left;
      files.materialise(left.path(), loss);
      EXPECT_EQ(load(quick_files(), left.path(), after.tag), after.value);
      if (as_latest) {
        EXPECT_EQ(read_latest(left.open()), after.tag);
      }
    }
  };
  Lock lock(folder.open(files));
  Staging staging(lock, after.tag);
  write_files(staging.folder(), after.value);
  staging.commit(after.replace);
  expect_kept(false);
  set_latest(lock, after.tag);
  expect_kept(true);
}

// A process ended when both names of a replacement were changed and neither was durable. What
// follows must not remove the old files before the new name stays.
void expect_whole_after_a_death(const std::function<void(Lock&)>& next) {
  const Scenario scenario{"replaced", {{"s1", 10}}, {"s1", 11, true}};
  const TemporaryFolder folder;
  prepare(folder.path(), scenario);
  const Recorder* disk = nullptr;
  Recorder files(folder.path(), [&] {
    if (disk != nullptr) expect_whole(*disk, scenario);
  });
  Lock lock(folder.open(files));
  const Staging staging(lock, "s1");
  Folder staged = lock.folder().open_folder(staging.name());
  write_files(staged, 11);
  staged.sync();
  lock.folder().rename("s1", ".old-s1");
  lock.folder().rename(staging.name(), "s1");
  disk = &files;
  next(lock);
  expect_whole(files, scenario);
}

TEST(PowerLossAfterADeath, ASweepLeavesAWholeCheckpoint) {
  expect_whole_after_a_death([](Lock& lock) { sweep(lock); });
}

TEST(PowerLossAfterADeath, AReplacementLeavesAWholeCheckpoint) {
  expect_whole_after_a_death([](Lock& lock) {
    Staging staging(lock, "s1");
    write_files(staging.folder(), 11);
    staging.commit(true);
  });
}

INSTANTIATE_TEST_SUITE_P(All, PowerLoss, testing::ValuesIn(scenarios()),
                         [](const auto& scenario) { return std::string(scenario.param.name); });

}  // namespace
}  // namespace outrigger::checkpoint::test

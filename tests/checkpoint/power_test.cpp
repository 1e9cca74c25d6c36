// SPDX-License-Identifier: Apache-2.0
// Power is lost after any call of a save, and the disk keeps as little as it may.
#include <gtest/gtest.h>

#include "core/base/text.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/recorder.h"
#include "tests/checkpoint/save.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

constexpr Loss kLosses[] = {{false, false}, {false, true}, {true, false}, {true, true}};

class PowerLoss : public testing::TestWithParam<Scenario> {};

TEST_P(PowerLoss, LeavesAWholeCheckpoint) {
  const TemporaryFolder folder;
  prepare(folder.path(), GetParam());
  int64_t moments = 0;
  const Recorder* disk = nullptr;
  const auto look = [&] {
    ++moments;
    for (const Loss& loss : kLosses) {
      if (testing::Test::HasFailure()) return;
      const TemporaryFolder left;
      disk->materialise(left.path(), loss);
      EXPECT_EQ(fault_after(left.path(), GetParam()), "")
          << format_text("after change {}; names are lost above: {}, inside: {}", moments,
                         loss.top_names, loss.inner_names);
    }
  };
  Recorder files(folder.path(), look);
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
  {
    // Without its value, a checkpoint of the former save's files would do.
    const TemporaryFolder other;
    save(quick_files(), other.path(), after);
    Staging staging(lock, after.tag);
    const Folder source = open_checkpoint(other.open(), after.tag);
    for (const std::string& name : source.names()) {
      const std::string text = read_text(source.path() + "/" + name);
      File file = staging.folder().create_file(name);
      file.write_at(0, bytes_of_text(text));
      file.sync();
      file.close();
    }
    staging.commit(after.replace);
    expect_kept(false);
  }
  set_latest(lock, after.tag);
  expect_kept(true);
}

INSTANTIATE_TEST_SUITE_P(All, PowerLoss, testing::ValuesIn(scenarios()),
                         [](const auto& scenario) { return std::string(scenario.param.name); });

}  // namespace
}  // namespace outrigger::checkpoint::test

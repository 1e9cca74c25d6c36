// SPDX-License-Identifier: Apache-2.0
// A save in which one call fails, or the process ends at one: for every call there is.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/save.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

class CheckpointSave : public testing::TestWithParam<Scenario> {
 protected:
  // A folder as it was before.
  static std::unique_ptr<TemporaryFolder> prepared() {
    auto folder = std::make_unique<TemporaryFolder>();
    prepare(folder->path(), GetParam());
    return folder;
  }
  static void expect_whole(const TemporaryFolder& folder) {
    EXPECT_EQ(fault_after(folder.path(), GetParam()), "");
  }
  // As the folder is after a save with nothing wrong.
  static void expect_done(const TemporaryFolder& folder) {
    EXPECT_EQ(read_latest(folder.open()), GetParam().after.tag);
    EXPECT_EQ(load(quick_files(), folder.path(), GetParam().after.tag), GetParam().after.value);
  }

  // All calls, or those of one operation.
  static int64_t calls_of_a_save(std::optional<Operation> operation = {}) {
    const auto folder = prepared();
    int64_t calls = 0;
    FaultyFiles files([&](int64_t, Operation called) {
      if (!operation || called == *operation) ++calls;
      return 0;
    });
    save(files, folder->path(), GetParam().after);
    expect_done(*folder);
    return calls;
  }

  // Each call fails once, or all from it on.
  static void fail_each(int reason, bool sticky, std::optional<Operation> operation = {});
};

void CheckpointSave::fail_each(int reason, bool sticky, std::optional<Operation> operation) {
  const int64_t calls = calls_of_a_save(operation);
  int64_t failed = 0;
  for (int64_t n = 0; n < calls; ++n) {
    SCOPED_TRACE(n);
    const auto folder = prepared();
    const size_t descriptors = open_descriptors();
    FaultyFiles files(operation ? failing(*operation, n, reason, sticky)
                                : failing_at(n, reason, sticky));
    bool thrown = false;
    try {
      save(files, folder->path(), GetParam().after);
    } catch (const Error& error) {
      thrown = true;
      const std::string text = error.what();
      EXPECT_NE(text.find(folder->path()), std::string::npos) << text;
      EXPECT_NE(text.find(std::strerror(-reason)), std::string::npos) << text;
      EXPECT_EQ(error.status(), OTR_E_IO) << text;
    }
    failed += thrown ? 1 : 0;
    EXPECT_EQ(open_descriptors(), descriptors);
    if (!thrown) expect_done(*folder);
    expect_whole(*folder);
    save(quick_files(), folder->path(), {"s4", 40});  // and the next save is not in its way
    EXPECT_EQ(load(quick_files(), folder->path(), "s4"), 40);
    if (HasFailure()) return;
  }
  EXPECT_GT(failed, operation ? 3 : 30);
}

TEST_P(CheckpointSave, AnyCallFailsOnce) { fail_each(-EIO, false); }
TEST_P(CheckpointSave, AllCallsFailFromOneOn) { fail_each(-EIO, true); }
TEST_P(CheckpointSave, TheDiskIsFull) { fail_each(-ENOSPC, true, Operation::write); }
TEST_P(CheckpointSave, OneWriteFindsNoSpace) { fail_each(-ENOSPC, false, Operation::write); }
TEST_P(CheckpointSave, AnySyncFailsOnce) { fail_each(-EIO, false, Operation::sync); }

TEST_P(CheckpointSave, ShortWritesChangeNothing) {
  const auto folder = prepared();
  FaultyFiles files(failing(Operation::write, 0, FaultyFiles::kHalf, true));
  save(files, folder->path(), GetParam().after);
  expect_done(*folder);
  expect_whole(*folder);
}

TEST_P(CheckpointSave, NothingIsLeftWhereNoCallFailsTwice) {
  const int64_t calls = calls_of_a_save(Operation::write);
  for (int64_t n = 0; n < calls; ++n) {
    SCOPED_TRACE(n);
    const auto folder = prepared();
    FaultyFiles files(failing(Operation::write, n, -ENOSPC));
    try {
      save(files, folder->path(), GetParam().after);
    } catch (const Error&) {
      for (const std::string& name : folder->open().names()) {
        EXPECT_FALSE(name.starts_with(".tmp-")) << name;
      }
    }
  }
}

TEST_P(CheckpointSave, TheProcessEndsAtAnyCall) {
  const int64_t calls = calls_of_a_save();
  for (int64_t n = 0; n <= calls; ++n) {
    SCOPED_TRACE(n);
    const auto folder = prepared();
    const pid_t child = fork();
    if (child == 0) {
      FaultyFiles files([&](int64_t number, Operation) {
        if (number == n) _exit(7);
        return 0;
      });
      save(files, folder->path(), GetParam().after);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), n < calls ? 7 : 0);
    if (n == calls) expect_done(*folder);
    expect_whole(*folder);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointSave, testing::ValuesIn(scenarios()),
                         [](const auto& scenario) { return std::string(scenario.param.name); });

}  // namespace
}  // namespace outrigger::checkpoint::test

// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "core/base/error.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

using Names = std::vector<std::string>;

void save(Lock& lock, const std::string& tag, const std::string& value, bool replace = false) {
  Staging staging(lock, tag);
  Writer writer(staging.folder(), "w", {{"v", Dtype::u8, {static_cast<int64_t>(value.size())}}},
                {});
  writer.write(0, 0, bytes_of_text(value));
  writer.finish();
  staging.commit(replace);
}

std::string load(const Folder& parent, const std::string& tag) {
  const Folder folder = open_checkpoint(parent, tag);
  return read_tensor(Reader(folder, "w"), "v");
}

TEST(CheckpointDirectory, ACommitShowsAll) {
  const TemporaryFolder temporary;
  Lock lock(temporary.open());
  const Folder parent = temporary.open();
  EXPECT_TRUE(tags(parent).empty());
  EXPECT_EQ(read_latest(parent), std::nullopt);
  {
    Staging staging(lock, "step1");
    EXPECT_TRUE(staging.name().starts_with(".tmp-step1-"));
    EXPECT_TRUE(parent.has_folder(staging.name()));
    EXPECT_TRUE(tags(parent).empty());
    EXPECT_NE(Staging(lock, "step1").name(), staging.name());
  }
  EXPECT_EQ(parent.names(), Names{".lock"});
  save(lock, "step1", "one");
  EXPECT_EQ(tags(parent), Names{"step1"});
  EXPECT_EQ(load(parent, "step1"), "one");
  expect_error(OTR_E_NOT_FOUND, {"/step2"}, [&] { (void)load(parent, "step2"); });
  EXPECT_EQ(parent.names(), (Names{".lock", "step1"}));
}

TEST(CheckpointDirectory, ReplacesOnlyWhenTold) {
  const TemporaryFolder temporary;
  Lock lock(temporary.open());
  const Folder parent = temporary.open();
  save(lock, "a", "old");
  expect_error(OTR_E_DUPLICATE, {"/a"}, [&] { save(lock, "a", "new"); });
  EXPECT_EQ(load(parent, "a"), "old");
  EXPECT_EQ(parent.names(), (Names{".lock", "a"}));
  save(lock, "a", "new", true);
  EXPECT_EQ(load(parent, "a"), "new");
  EXPECT_EQ(parent.names(), (Names{".lock", "a"}));
  Staging staging(lock, "b");
  staging.commit();
  expect_error(OTR_E_STATE, {"b", "before"}, [&] { staging.commit(); });
}

// A user's files in a checkpoint's folder stay where they are, at any depth, whatever is replaced.
TEST(CheckpointDirectory, WhatIsNotACheckpointsOwnStays) {
  const TemporaryFolder temporary;
  Lock lock(temporary.open());
  Folder parent = temporary.open();
  std::string deep = "a";  // made before there is a checkpoint
  for (int depth = 0; depth < 20; ++depth) deep += "/d";
  std::filesystem::create_directories(temporary / deep);
  write_text(temporary / deep + "/tokenizer.json", "deep");
  write_text(temporary / "a/manifest.json", "no manifest");
  expect_error(OTR_E_DUPLICATE, {"/a", "there is such a checkpoint"},
               [&] { save(lock, "a", "1"); });
  save(lock, "a", "1", true);
  EXPECT_EQ(parent.open_folder("a").names(), (Names{"d", "w"})) << "the manifest is another's";
  write_text(temporary / "a/notes", "first");
  write_text(temporary / "a/w", "not the new one");
  save(lock, "a", "2", true);
  EXPECT_EQ(load(parent, "a"), "2");
  EXPECT_EQ(read_text(temporary / "a/notes"), "first");
  EXPECT_EQ(read_text(temporary / deep + "/tokenizer.json"), "deep");
  EXPECT_EQ(parent.names(), (Names{".lock", "a"}));

  // The process ended before it had moved them.
  parent.make_folder(".old-a");
  write_text(temporary / ".old-a/notes", "older");
  write_text(temporary / ".old-a/more", "kept");
  write_text(temporary / ".old-a/rank-notes1.safetensors", "kept");
  write_text(temporary / ".old-a/rank-00000.safetensors", "old");
  sweep(lock);
  EXPECT_EQ(parent.open_folder("a").names(),
            (Names{"d", "more", "notes", "rank-notes1.safetensors", "w"}));
  EXPECT_EQ(read_text(temporary / "a/notes"), "first");
}

TEST(CheckpointDirectory, OnlyFoldersAreReplaced) {
  const TemporaryFolder temporary, other;
  Lock lock(temporary.open());
  const Folder parent = temporary.open();
  write_text(temporary / "a", "a user's");
  ASSERT_EQ(symlink(other.path().c_str(), (temporary / "b").c_str()), 0);
  write_text(other / "kept", "");
  for (const char* tag : {"a", "b"}) {
    for (const bool replace : {false, true}) {
      expect_error(OTR_E_DUPLICATE, {tag, "something else than a folder"},
                   [&] { save(lock, tag, "1", replace); });
      expect_error(OTR_E_DUPLICATE, {tag, "something else than a folder"},
                   [&] { require_free(parent, tag, replace); });
    }
  }
  EXPECT_EQ(read_text(temporary / "a"), "a user's");
  EXPECT_EQ(other.open().names(), Names{"kept"});
  std::filesystem::create_directory(temporary / "c");
  expect_error(OTR_E_DUPLICATE, {"/c", "there is such a folder"}, [&] { save(lock, "c", "1"); });
  EXPECT_EQ(parent.names(), (Names{".lock", "a", "b", "c"}));
}

// As it lies between the two renames of a replacement.
TEST(CheckpointDirectory, ACheckpointUnderItsOldNameIsFound) {
  const TemporaryFolder temporary;
  Lock lock(temporary.open());
  Folder parent = temporary.open();
  save(lock, "a", "old");
  set_latest(lock, "a");
  parent.rename("a", ".old-a");
  EXPECT_EQ(tags(parent), Names{"a"});
  EXPECT_EQ(load(parent, "a"), "old");
  expect_error(OTR_E_DUPLICATE, {"/a"}, [&] { save(lock, "a", "new"); });
  EXPECT_EQ(sweep(lock), Names{".old-a"});
  EXPECT_EQ(parent.names(), (Names{".lock", "a", "latest"}));
  EXPECT_EQ(load(parent, "a"), "old");

  parent.rename("a", ".old-a");
  save(lock, "a", "new", true);
  EXPECT_EQ(load(parent, "a"), "new");
  EXPECT_EQ(parent.names(), (Names{".lock", "a", "latest"}));
}

TEST(CheckpointDirectory, SweepRemovesWhatIsNotComplete) {
  const TemporaryFolder temporary;
  Lock lock(temporary.open());
  Folder parent = temporary.open();
  save(lock, "a", "1");
  parent.make_folder(".tmp-b-1-0");
  write_text(temporary / ".tmp-b-1-0/w", "half");
  write_text(temporary / ".tmp-latest-1-0", "b\n");
  parent.make_folder(".old-a");
  write_text(temporary / ".old-a/w", "half");
  parent.make_folder(".old-..");  // names nothing
  write_text(temporary / ".keep", "not ours");
  EXPECT_EQ(tags(parent), Names{"a"});
  EXPECT_EQ(sweep(lock).size(), 4U);
  EXPECT_EQ(parent.names(), (Names{".keep", ".lock", "a"}));
  EXPECT_TRUE(sweep(lock).empty());
}

TEST(CheckpointDirectory, Latest) {
  const TemporaryFolder temporary;
  Lock lock(temporary.open());
  const Folder parent = temporary.open();
  expect_error(OTR_E_NOT_FOUND, {"/a"}, [&] { set_latest(lock, "a"); });
  save(lock, "a", "1");
  save(lock, "b", "2");
  set_latest(lock, "a");
  set_latest(lock, "b");
  EXPECT_EQ(read_latest(parent), "b");
  EXPECT_EQ(read_text(temporary / "latest"), "b\n");
  for (const char* text : {"global_step10", "global_step10\n", "global_step10\r\n"}) {
    write_text(temporary / "latest", text);
    EXPECT_EQ(read_latest(parent), "global_step10");
  }
  const std::string long_text(100000, 'x');
  for (const std::string& text : {std::string(), std::string("\n"), std::string("../a"),
                                  std::string(".tmp-a"), std::string("a\nb"), long_text}) {
    write_text(temporary / "latest", text);
    expect_error(OTR_E_CORRUPT, {"/latest", "no tag", "Remove it"},
                 [&] { (void)read_latest(parent); });
  }
  // What it names is there as a whole.
  std::filesystem::create_directory(temporary / "begun");
  for (const char* text : {"gone", "begun"}) {
    write_text(temporary / "latest", text);
    EXPECT_EQ(read_latest(parent), text);
    expect_error(OTR_E_CORRUPT, {"/latest", text, "bring that back"},
                 [&] { (void)tag_or_latest(parent, ""); });
    EXPECT_EQ(tag_or_latest(parent, text), text);
  }
  write_text(temporary / "begun/manifest.json", "");
  EXPECT_EQ(tag_or_latest(parent, ""), "begun");
  for (const char* target : {"a", "nowhere"}) {
    std::filesystem::remove(temporary / "latest");
    ASSERT_EQ(symlink(target, (temporary / "latest").c_str()), 0);
    expect_error(OTR_E_CORRUPT, {"/latest", "links are not", "Remove it"},
                 [&] { (void)read_latest(parent); });
  }
  std::filesystem::remove(temporary / "latest");
  std::filesystem::create_directory(temporary / "latest");
  expect_error(OTR_E_CORRUPT, {"/latest", "it is a folder", "Remove it"},
               [&] { (void)read_latest(parent); });
  std::filesystem::remove(temporary / "latest");
  ASSERT_EQ(mkfifo((temporary / "latest").c_str(), 0600), 0);
  expect_error(OTR_E_CORRUPT, {"/latest", "it is a pipe", "Remove it"},
               [&] { (void)read_latest(parent); });
}

TEST(CheckpointDirectory, TagsAreNames) {
  const TemporaryFolder temporary;
  Lock lock(temporary.open());
  const std::string long_tag(201, 'x');
  for (const std::string& tag : {std::string(), std::string("."), std::string("a/b"),
                                 std::string(".hidden"), std::string("latest"), std::string("a b"),
                                 std::string("a\n"), std::string("\xFF"), long_tag}) {
    expect_error(OTR_E_ARGUMENT, {"no tag"}, [&] { const Staging staging(lock, tag); });
    expect_error(OTR_E_ARGUMENT, {"no tag"}, [&] { set_latest(lock, tag); });
    expect_error(OTR_E_ARGUMENT, {"no tag"}, [&] { (void)open_checkpoint(lock.folder(), tag); });
  }
  save(lock, std::string(200, 'x'), "1");
  save(lock, "étape_1", "1");
  EXPECT_EQ(tags(lock.folder()).size(), 2U);
  write_text(temporary / "file", "no checkpoint");
  ASSERT_EQ(symlink("étape_1", (temporary / "link").c_str()), 0);
  EXPECT_EQ(tags(lock.folder()).size(), 2U);
}

TEST(CheckpointDirectory, KeepsTheLast) {
  const TemporaryFolder temporary;
  Lock lock(temporary.open());
  for (const char* tag : {"s1", "s2", "s9", "s10", "mine", "s3"}) save(lock, tag, tag);
  set_latest(lock, "s1");
  const Age age = [](const std::string& tag) -> std::optional<int64_t> {
    if (tag[0] != 's') return std::nullopt;
    return std::stoll(tag.substr(1));
  };
  EXPECT_EQ(keep_last(lock, 2, age), (Names{"s3", "s2"}));
  EXPECT_EQ(tags(lock.folder()), (Names{"mine", "s1", "s10", "s9"}));
  EXPECT_TRUE(keep_last(lock, 2, age).empty());
  set_latest(lock, "s9");
  EXPECT_EQ(keep_last(lock, 0, age), (Names{"s10", "s1"}));
  EXPECT_EQ(lock.folder().names(), (Names{".lock", "latest", "mine", "s9"}));
}

TEST(CheckpointDirectory, ARemovedCheckpointIsNeverSeenInHalves) {
  const TemporaryFolder temporary;
  {
    Lock lock(temporary.open());
    save(lock, "a", "1");
  }
  FaultyFiles files(failing(Operation::unlink, 1, -EIO, true));
  Lock lock(temporary.open(files));
  expect_error(OTR_E_IO, {"remove it"},
               [&] { keep_last(lock, 0, [](const std::string&) { return 1; }); });
  EXPECT_TRUE(tags(temporary.open()).empty());
}

TEST(CheckpointDirectory, AReplacementThatFailsPutsTheOldOneBack) {
  const TemporaryFolder temporary;
  {
    Lock lock(temporary.open());
    save(lock, "a", "old");
  }
  FaultyFiles files(failing(Operation::rename, 1, -EIO));
  Lock lock(temporary.open(files));
  expect_error(OTR_E_IO, {"rename it to a"}, [&] { save(lock, "a", "new", true); });
  EXPECT_EQ(temporary.open().names(), (Names{".lock", "a"}));
  EXPECT_EQ(load(temporary.open(), "a"), "old");
}

}  // namespace
}  // namespace outrigger::checkpoint::test

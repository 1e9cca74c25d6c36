// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "core/base/error.h"
#include "core/checkpoint/lock.h"
#include "tests/checkpoint/faults.h"
#include "tests/checkpoint/support.h"

namespace outrigger::checkpoint::test {
namespace {

void write_file(Folder& folder, std::string_view name, std::string_view text) {
  File file = folder.create_file(name);
  file.write_at(0, bytes_of_text(text));
  file.sync();
  file.close();
}

TEST(CheckpointFiles, WritesAndReadsAtOffsets) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  File file = folder.create_file("a");
  file.write_at(3, bytes_of_text("def"));
  file.write_at(0, bytes_of_text("abc"));
  file.sync();
  file.close();
  file.close();  // nothing happens
  const File again = folder.open_file("a");
  EXPECT_EQ(again.size(), 6);
  std::string out(4, '\0');
  again.read_at(1, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "bcde");
  expect_error(OTR_E_CORRUPT, {temporary / "a", "read", "ends at byte 6", "up to 8"},
               [&] { again.read_at(4, std::as_writable_bytes(std::span(out))); });
  EXPECT_FALSE(folder.find_file("b").has_value());
}

TEST(CheckpointFiles, OnlyPlainNames) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  folder.make_folder("f");
  const std::string zero("a\0b", 3), long_name(256, 'x');
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("/etc/passwd"),
        std::string("f/a"), zero, std::string("../a"), std::string("a/"), long_name}) {
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { (void)folder.create_file(name); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { (void)folder.open_file(name); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { (void)folder.open_folder(name); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { folder.make_folder(name); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { folder.rename("f", name); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { folder.rename(name, "g"); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { folder.link("f", name); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { folder.link(name, "g"); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { folder.remove_file(name); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { folder.remove_all(name); });
    expect_error(OTR_E_ARGUMENT, {"no name"}, [&] { (void)folder.has(name); });
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
  expect_error(OTR_E_ARGUMENT, {"no path"}, [] { (void)Folder::open(posix_files(), ""); });
  expect_error(OTR_E_NOT_FOUND, {"nowhere", "open the folder", "No such file"},
               [&] { (void)folder.open_folder("nowhere"); });
}

// Everything that has a name and is no file.
TEST(CheckpointFiles, OnlyRegularFiles) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  write_file(folder, "file", "x");
  folder.make_folder("folder");
  ASSERT_EQ(symlink("file", (temporary / "link").c_str()), 0);
  ASSERT_EQ(symlink("folder", (temporary / "folder_link").c_str()), 0);
  ASSERT_EQ(symlink("nothing", (temporary / "dangling").c_str()), 0);
  ASSERT_EQ(mkfifo((temporary / "pipe").c_str(), 0600), 0);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string socket_path = temporary / "socket";
  ASSERT_LT(socket_path.size(), sizeof address.sun_path);
  std::memcpy(&address.sun_path[0], socket_path.c_str(), socket_path.size());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(fd);

  const auto open = [&](std::string_view name) { (void)folder.open_file(name); };
  expect_error(OTR_E_CORRUPT, {"/link", "open it", "links are not"}, [&] { open("link"); });
  expect_error(OTR_E_CORRUPT, {"/dangling", "links are not"}, [&] { open("dangling"); });
  expect_error(OTR_E_CORRUPT, {"/folder", "a folder"}, [&] { open("folder"); });
  expect_error(OTR_E_CORRUPT, {"/pipe", "a pipe"}, [&] { open("pipe"); });
  expect_error(OTR_E_CORRUPT, {"/socket", "No such device"}, [&] { open("socket"); });
  const Folder devices = Folder::open(posix_files(), "/dev");
  expect_error(OTR_E_CORRUPT, {"/dev/null", "a device"}, [&] { (void)devices.open_file("null"); });

  expect_error(OTR_E_CORRUPT, {"/file", "Not a directory"},
               [&] { (void)folder.open_folder("file"); });
  expect_error(OTR_E_CORRUPT, {"/folder_link"}, [&] { (void)folder.open_folder("folder_link"); });
  for (const char* name : {"file", "folder", "link", "dangling", "pipe"}) {
    expect_error(OTR_E_DUPLICATE, {name, "create it", "File exists"},
                 [&] { (void)folder.create_file(name); });
    EXPECT_TRUE(folder.has(name));
    EXPECT_EQ(folder.has_folder(name), std::string_view(name) == "folder");
  }
  EXPECT_FALSE(folder.has("other"));
  EXPECT_FALSE(folder.has_folder("folder_link"));
}

TEST(CheckpointFiles, NamesCanBeMoved) {
  const TemporaryFolder temporary;
  Folder folder = temporary.open();
  write_file(folder, "a", "first");
  write_file(folder, "b", "second");
  expect_error(OTR_E_DUPLICATE, {"/a", "link it as b", "File exists"},
               [&] { folder.link("a", "b"); });
  folder.link("a", "c");
  folder.rename("a", "b");
  EXPECT_EQ(read_text(temporary / "b"), "first");
  EXPECT_EQ(read_text(temporary / "c"), "first");
  folder.remove_file("c");
  expect_error(OTR_E_NOT_FOUND, {"/c", "remove it"}, [&] { folder.remove_file("c"); });
  folder.make_folder("f");
  expect_error(OTR_E_CORRUPT, {"/f", "remove it"}, [&] { folder.remove_file("f"); });
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"b", "f"}));
}

TEST(CheckpointFiles, RemovesATreeAndFollowsNoLinks) {
  const TemporaryFolder temporary, outside;
  write_text(outside / "precious", "x");
  Folder folder = temporary.open();
  folder.make_folder("tree");
  Folder tree = folder.open_folder("tree");
  tree.make_folder("inner");
  Folder inner = tree.open_folder("inner");
  write_file(inner, "file", "x");
  ASSERT_EQ(symlink(outside.path().c_str(), (temporary / "tree/inner/link").c_str()), 0);
  ASSERT_EQ(symlink(outside.path().c_str(), (temporary / "link").c_str()), 0);
  folder.remove_all("tree");
  folder.remove_all("link");
  folder.remove_all("nothing");
  EXPECT_TRUE(folder.names().empty());
  EXPECT_EQ(read_text(outside / "precious"), "x");

  std::string path = temporary.path();
  for (int i = 0; i < 20; ++i) {
    path += "/d";
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  }
  expect_error(OTR_E_CORRUPT, {"/d/d", "nest deeper than 16"}, [&] { folder.remove_all("d"); });
}

TEST(CheckpointFiles, InterruptsAndShortTransfersAreContinued) {
  const TemporaryFolder temporary;
  int64_t asked = 0;
  FaultyFiles files([&](int64_t, Operation operation) {
    if (asked++ % 2 == 0 && operation != Operation::close) return -EINTR;
    return operation == Operation::read || operation == Operation::write ? FaultyFiles::kHalf : 0;
  });
  Folder folder = temporary.open(files);
  std::string text(1000, '\0'), out(1000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  write_file(folder, "a", text);
  folder.sync();
  folder.open_file("a").read_at(0, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, text);
  folder.rename("a", "b");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"b"});
  EXPECT_GT(files.calls(), 40);
}

TEST(CheckpointFiles, AFailedSyncStaysFailed) {
  const TemporaryFolder temporary;
  FaultyFiles files(failing(Operation::sync, 0, -EIO));  // the kernel would say yes the next time
  Folder folder = temporary.open(files);
  File file = folder.create_file("a");
  file.write_at(0, bytes_of_text("x"));
  expect_error(OTR_E_IO, {temporary / "a", "fsync", "Input/output error"}, [&] { file.sync(); });
  expect_error(OTR_E_IO, {temporary / "a", "earlier"}, [&] { file.sync(); });
  expect_error(OTR_E_IO, {"earlier"}, [&] { file.write_at(0, bytes_of_text("y")); });
  expect_error(OTR_E_IO, {"earlier"}, [&] { file.close(); });
}

TEST(CheckpointFiles, AFailedWriteStaysFailed) {
  const TemporaryFolder temporary;
  FaultyFiles files(failing(Operation::write, 1, -ENOSPC));
  Folder folder = temporary.open(files);
  File file = folder.create_file("a");
  file.write_at(0, bytes_of_text("x"));
  expect_error(OTR_E_IO, {temporary / "a", "write it", "No space left"},
               [&] { file.write_at(1, bytes_of_text("y")); });
  expect_error(OTR_E_IO, {"earlier"}, [&] { file.sync(); });
  expect_error(OTR_E_IO, {"earlier"}, [&] { file.close(); });
}

TEST(CheckpointFiles, AFailedSyncOfAFolderStaysFailed) {
  const TemporaryFolder temporary;
  FaultyFiles files(failing(Operation::sync, 0, -EIO));
  Folder folder = temporary.open(files);
  expect_error(OTR_E_IO, {temporary.path(), "fsync"}, [&] { folder.sync(); });
  expect_error(OTR_E_IO, {"earlier"}, [&] { folder.sync(); });
  const Folder moved = std::move(folder);
  EXPECT_THROW(const_cast<Folder&>(moved).sync(), Error);
}

TEST(CheckpointFiles, ErrorsOfCloseCount) {
  const TemporaryFolder temporary;
  FaultyFiles files(failing(Operation::close, 0, -EDQUOT));
  Folder folder = temporary.open(files);
  const size_t before = open_descriptors();
  File file = folder.create_file("a");
  expect_error(OTR_E_IO, {"close it", "quota"}, [&] { file.close(); });
  EXPECT_EQ(open_descriptors(), before);
}

TEST(CheckpointFiles, StatusesFitTheReasons) {
  const TemporaryFolder temporary;
  const std::pair<int, int32_t> cases[] = {{ENOSPC, OTR_E_IO},
                                           {EIO, OTR_E_IO},
                                           {EROFS, OTR_E_IO},
                                           {EACCES, OTR_E_IO},
                                           {EMFILE, OTR_E_OUT_OF_MEMORY},
                                           {ENOMEM, OTR_E_OUT_OF_MEMORY},
                                           {ENOENT, OTR_E_NOT_FOUND},
                                           {EEXIST, OTR_E_DUPLICATE},
                                           {ELOOP, OTR_E_CORRUPT}};
  for (const auto& [reason, status] : cases) {
    FaultyFiles files(failing(Operation::open, 1, -reason));
    Folder folder = temporary.open(files);
    expect_error(status, {temporary / "new", "create it", std::strerror(reason)},
                 [&] { (void)folder.create_file("new"); });
  }
}

// The failure of a lock in a child of this process; empty: it got it.
std::string lock_in_child(const std::string& folder) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      const Lock lock(Folder::open(posix_files(), folder));
    } catch (const Error& error) {
      text = error.what();
    }
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t bytes = read(ends[0], text.data(), text.size());
  close(ends[0]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, bytes)));
  return text;
}

TEST(CheckpointLock, NamesItsHolder) {
  const TemporaryFolder temporary;
  {
    const Lock lock(temporary.open());
    expect_error(OTR_E_STATE, {".lock", "this process writes in it"},
                 [&] { const Lock second(temporary.open()); });
    const std::string failure = lock_in_child(temporary.path());
    EXPECT_NE(failure.find("process " + std::to_string(getpid()) + " on "), failure.npos)
        << failure << " (neither the second lock nor a child may have ended it)";
  }
  EXPECT_EQ(lock_in_child(temporary.path()), "");
  const Lock again(temporary.open());
}

// Children that live on, such as those of a data loader.
TEST(CheckpointLock, ForkedChildrenDoNotHaveIt) {
  const TemporaryFolder temporary;
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const auto fork_sleeper = [&] {
    const pid_t child = fork();
    if (child == 0) {
      char byte = 0;
      close(ends[1]);
      _exit(static_cast<int>(read(ends[0], &byte, 1)));  // until this process ends or closes
    }
    return child;
  };
  pid_t sleeper = 0;
  {
    const Lock lock(temporary.open());
    sleeper = fork_sleeper();
  }
  {
    const Lock again(temporary.open());
  }
  const pid_t killed = fork();
  if (killed == 0) {
    const Lock lock(temporary.open());
    fork_sleeper();
    raise(SIGKILL);
  }
  ASSERT_EQ(waitpid(killed, nullptr, 0), killed);
  const Lock again(temporary.open());
  close(ends[1]);
  EXPECT_EQ(waitpid(sleeper, nullptr, 0), sleeper);
  close(ends[0]);
}

TEST(CheckpointLock, EndsWithItsProcess) {
  const TemporaryFolder temporary;
  const pid_t child = fork();
  if (child == 0) {
    const Lock lock(temporary.open());
    _exit(0);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const Lock lock(temporary.open());
}

TEST(CheckpointLock, AFullDiskDoesNotStopIt) {
  const TemporaryFolder temporary;
  FaultyFiles files(failing(Operation::write, 0, -ENOSPC));
  const Lock lock(temporary.open(files));
  const std::string failure = lock_in_child(temporary.path());
  EXPECT_NE(failure.find("another process"), failure.npos) << failure;
}

TEST(CheckpointLock, IsAFileOfItsOwn) {
  const TemporaryFolder temporary, other;
  ASSERT_EQ(symlink((other / "x").c_str(), (temporary / ".lock").c_str()), 0);
  expect_error(OTR_E_CORRUPT, {".lock", "links are not"},
               [&] { const Lock lock(temporary.open()); });
  EXPECT_TRUE(other.open().names().empty());
  ASSERT_EQ(mkfifo((other / ".lock").c_str(), 0600), 0);
  expect_error(OTR_E_CORRUPT, {".lock", "not a file"}, [&] { const Lock lock(other.open()); });
}

}  // namespace
}  // namespace outrigger::checkpoint::test

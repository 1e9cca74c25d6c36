// SPDX-License-Identifier: Apache-2.0
// Flight recorders: the ring and the groups' places, whoever ends, and however; their folder.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "core/base/error.h"
#include "core/comm/recorded.h"
#include "tests/comm/flights.h"
#include "tests/comm/ranks.h"

namespace outrigger::comm::test {
namespace {

TEST(FlightRecorder, KeepsTheLastOperationsAndEveryOneThatIsUnderWay) {
  const Folder folder;
  const auto recorder = std::make_shared<FlightRecorder>(folder.place());
  const int32_t held = recorder->open({77, 0, 2, "shm", "held"});
  FlightEntry entry{};
  entry.group = 77;
  entry.number = 5;
  std::strcpy(entry.label, "waits");
  EXPECT_TRUE(recorder->begin(held, entry));
  const auto comm = recorded(make_self(), recorder, "busy");
  for (uint64_t i = 1; i <= 1500; ++i) comm->barrier(std::to_string(i));
  const Content content = read(recorder->path());
  ASSERT_EQ(content.entries.size(), kFlightEntries);
  for (size_t i = 0; i < content.entries.size(); ++i) {
    const uint64_t serial = 1500 - kFlightEntries + i + 1;
    EXPECT_EQ(content.entries[i].serial, serial);
    EXPECT_EQ(content.entries[i].number, serial);
    EXPECT_EQ(text(content.entries[i].label), std::to_string(serial));
  }
  EXPECT_EQ(text(content.groups[0].current.label), "waits");
  EXPECT_EQ(content.groups[0].current.ended, 0);
  EXPECT_EQ(content.groups[0].current.number, 5U);
}

TEST(FlightRecorder, WhatIsRefusedHasNoNumber) {
  const Folder folder;
  const auto recorder = std::make_shared<FlightRecorder>(folder.place());
  const auto comm = recorded(make_self(), recorder, "main");
  comm->barrier("one");
  const std::span<std::byte> nothing;
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_THROW(comm->broadcast(nothing, 1, "no such root"), Error);
  }
  comm->barrier("two");
  const Content content = read(recorder->path());
  ASSERT_EQ(content.entries.size(), 4U);
  EXPECT_EQ(content.entries[1].number, 2U);
  EXPECT_EQ(content.entries[2].number, 2U);
  EXPECT_EQ(content.entries[3].number, 2U);
  EXPECT_EQ(content.header.failed, 0U) << "to be refused ends no group";
}

// Of a group's place only what differs from the operation before is written.
TEST(FlightRecorder, AGroupsPlaceSaysAllOfItsLastOperation) {
  const Folder folder;
  const auto recorder = std::make_shared<FlightRecorder>(folder.place());
  const auto comm = recorded(make_self(), recorder, "main");
  std::array<std::byte, 24> data{};
  const auto expect_last = [&](const char* what, const char* label, uint64_t number, uint64_t bytes,
                               int32_t status) {
    const FlightEntry current = read(recorder->path()).groups[0].current;
    EXPECT_EQ(text(current.what), what);
    EXPECT_EQ(text(current.label), label);
    EXPECT_EQ(current.number, number) << label;
    EXPECT_EQ(current.bytes, bytes) << label;
    EXPECT_EQ(current.status, status) << label;
    EXPECT_GE(current.ended, current.begun) << label;
  };
  comm->barrier("one");
  expect_last("barrier", "one", 1, 0, OTR_OK);
  comm->broadcast(data, 0, "one");  // of another kind
  expect_last("broadcast", "one", 2, 24, OTR_OK);
  comm->broadcast(data, 0, "three");
  expect_last("broadcast", "three", 3, 24, OTR_OK);
  EXPECT_THROW(comm->broadcast(data, 1, "three"), Error);
  expect_last("broadcast", "three", 4, 24, OTR_E_ARGUMENT);
  comm->broadcast(std::span(data).first(8), 0, "three");
  expect_last("broadcast", "three", 4, 8, OTR_OK);
  comm->broadcast(data, 0, "th");  // a part of it
  expect_last("broadcast", "th", 5, 24, OTR_OK);
}

TEST(FlightRecorder, PlacesOfGroupsAreUsedAgain) {
  const Folder folder;
  FlightRecorder recorder(folder.place());
  std::vector<int32_t> places;
  for (uint64_t i = 1; i <= kFlightGroups; ++i) {
    places.push_back(recorder.open({i, 0, 1, "self", "of many"}));
    EXPECT_EQ(places.back(), static_cast<int32_t>(i) - 1);
  }
  EXPECT_EQ(recorder.open({1000, 0, 1, "self", "too many"}), -1);
  EXPECT_EQ(read(recorder.path()).header.left_out, 1U);
  FlightEntry entry{};
  EXPECT_FALSE(recorder.begin(-1, entry)) << "of a group without a place";
  recorder.close(-1);
  recorder.close(places[9]);
  EXPECT_EQ(recorder.open({2000, 0, 1, "self", "a name"}), 9);
  EXPECT_EQ(text(read(recorder.path()).groups[9].name), "a name");
}

TEST(FlightRecorder, ThreadsShareOne) {
  constexpr int kThreads = 4, kEach = 3000;
  const Folder folder;
  const auto recorder = std::make_shared<FlightRecorder>(folder.place());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto comm = recorded(make_self(), recorder, std::to_string(t));
      for (int i = 1; i <= kEach; ++i) comm->barrier(outrigger::format_text("{} {}", t, i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Content content = read(recorder->path());
  EXPECT_EQ(content.header.serials, uint64_t{kThreads} * kEach);
  // A thread may be suspended while it writes, until the ring has gone round: what is in that place
  // then is nobody's entry, or an old one.
  ASSERT_LE(content.entries.size(), kFlightEntries);
  std::array<uint64_t, kThreads> last{};
  uint64_t serial = 0;
  size_t current = 0;
  for (const FlightEntry& entry : content.entries) {
    EXPECT_GT(entry.serial, serial);
    serial = entry.serial;
    current += serial > uint64_t{kThreads} * kEach - kFlightEntries ? 1 : 0;
    int t = -1;
    uint64_t number = 0;
    ASSERT_EQ(std::sscanf(text(entry.label).c_str(), "%d %lu", &t, &number), 2);
    EXPECT_EQ(number, entry.number);
    EXPECT_GT(number, last.at(static_cast<size_t>(t)));
    last.at(static_cast<size_t>(t)) = number;
  }
  EXPECT_LE(serial, uint64_t{kThreads} * kEach);
  EXPECT_GE(current, kFlightEntries - size_t{kThreads});
}

// The one file of the folder is whole.
bool has_begun(const Folder& folder) {
  if (folder.files().empty()) return false;
  uint64_t magic = 0;
  std::ifstream(folder.files()[0], std::ios::binary)
      .read(reinterpret_cast<char*>(&magic), sizeof magic);
  return magic == kFlightMagic;
}

// A child that is killed at any moment leaves whole entries, and the one that it was in.
TEST(FlightRecorder, OutlivesAKilledProcess) {
  const Folder folder;
  std::mt19937 random(20260728);
  constexpr int kTurns = 40;
  for (int turn = 0; turn < kTurns; ++turn) {
    const pid_t child = fork();
    if (child == 0) {
      const auto recorder = std::make_shared<FlightRecorder>(folder.place());
      const auto comm = recorded(make_self(), recorder, "main");
      for (int i = 1;; ++i) comm->barrier(outrigger::format_text("{} {}", i, std::string(30, 'x')));
    }
    while (!has_begun(folder)) std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_EQ(folder.files().size(), 1U);
    const Content content = read(folder.files()[0]);
    EXPECT_GE(content.entries.size() + 1, std::min<uint64_t>(content.header.serials, 1024));
    for (const FlightEntry& entry : content.entries) {
      EXPECT_EQ(text(entry.label),
                outrigger::format_text("{} {}", entry.number, std::string(30, 'x')));
      EXPECT_EQ(entry.number, entry.serial);
      EXPECT_EQ(entry.status, OTR_OK);
    }
    const FlightEntry& current = content.groups[0].current;
    if (current.serial != 0 && current.serial == current.serial_again) {
      EXPECT_LE(current.number - content.header.serials + 1, 2U);
    }
    fs::remove(folder.files()[0]);
  }
}

TEST(FlightRecorder, AForkedChildNeitherWritesNorRemoves) {
  const Folder folder;
  const auto recorder = std::make_shared<FlightRecorder>(folder.place());
  auto comm = recorded(make_self(), recorder, "main");
  comm->barrier("before");
  const pid_t child = fork();
  if (child == 0) {
    try {
      comm->barrier("in the child");
    } catch (const Error&) {
    }
    comm->abort("by the child");
    comm.reset();
    const_cast<std::shared_ptr<FlightRecorder>&>(recorder).reset();
    _exit(0);
  }
  int ended = -1;
  waitpid(child, &ended, 0);
  EXPECT_EQ(ended, 0) << "the memory of the group is not there in a child";
  ASSERT_EQ(folder.files().size(), 1U);
  const Content content = read(recorder->path());
  ASSERT_EQ(content.entries.size(), 1U);
  EXPECT_EQ(content.header.failed, 0U);
  EXPECT_EQ(content.groups[0].is_closed, 0U);
}

TEST(FlightRecorder, TellsWhatItCannotWriteTo) {
  const Folder folder;
  const auto refused = [](const FlightPlace& place) {
    try {
      const FlightRecorder recorder(place);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), OTR_E_IO);
      return std::string(error.what());
    }
    return std::string();
  };
  std::ofstream(folder.path() + "/file") << "x";
  EXPECT_NE(refused({folder.path() + "/file/folder", true}).find("OTR_FLIGHT_RECORDER"),
            std::string::npos);
  // Others could lay files into it.
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  EXPECT_NE(refused(folder.place(false)).find("this user alone"), std::string::npos);
  EXPECT_EQ(refused(folder.place(true)), "") << "a stated folder is its owner's affair";
  ASSERT_EQ(symlink("/tmp", (folder.path() + "/link").c_str()), 0);
  EXPECT_NE(refused({folder.path() + "/link", false}).find("this user alone"), std::string::npos);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const std::string text = refused(folder.place());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(text.find("File too large"), std::string::npos) << text;
  EXPECT_NE(text.find("\"off\""), std::string::npos) << text;
  EXPECT_EQ(folder.files().size(), 2U) << "nothing half made";
}

TEST(FlightFolder, IsThatOfTheVariable) {
  ASSERT_EQ(setenv("OTR_FLIGHT_RECORDER", "off", 1), 0);
  EXPECT_EQ(flight_place().folder, "");
  ASSERT_EQ(setenv("OTR_FLIGHT_RECORDER", "some/where", 1), 0);
  EXPECT_EQ(flight_place().folder, "some/where");
  EXPECT_TRUE(flight_place().is_stated);
  ASSERT_EQ(unsetenv("OTR_FLIGHT_RECORDER"), 0);
  EXPECT_FALSE(flight_place().is_stated);
  EXPECT_TRUE(flight_place().folder.ends_with(outrigger::format_text("outrigger-{}", geteuid())));
}

// A file as a process leaves it that ended so many hours ago.
void leave(const Folder& folder, const std::string& name, int hours) {
  FlightHeader header{};
  header.magic = kFlightMagic;
  header.version = kFlightVersion;
  header.began = nanoseconds_now() - int64_t{hours + 100} * 3600 * 1'000'000'000;
  header.to_calendar = 5'000'000'000;
  std::vector<FlightGroup> groups(kFlightGroups);
  groups[3].identity = 1;
  groups[3].current.begun =
      nanoseconds_now() - int64_t{hours} * 3600 * 1'000'000'000 - header.to_calendar;
  const std::string path = folder.path() + "/" + name;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(reinterpret_cast<const char*>(groups.data()),
             static_cast<std::streamsize>(groups.size() * sizeof(FlightGroup)));
  file.close();
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(200));
}

TEST(FlightFolder, IsSweptOfWhatIsOldOrTooMuch) {
  const Folder folder;
  leave(folder, "host-1.flight", 23);
  leave(folder, "host-2.flight", 25);
  leave(folder, "host-3.other", 25);
  std::ofstream(folder.path() + "/host-4.flight") << "garbage";
  fs::last_write_time(folder.path() + "/host-4.flight",
                      fs::file_time_type::clock::now() - std::chrono::hours(25));
  // Of a process that is there, however old it looks.
  leave(folder, "host-5.flight", 50);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int held = open((folder.path() + "/host-5.flight").c_str(), O_RDWR);
    struct flock lock{};
    lock.l_type = F_WRLCK;
    if (fcntl(held, F_SETLK, &lock) != 0 || write(ready[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  sweep_flights(folder.path());
  std::set<std::string> left;
  for (const auto& file : folder.files()) left.insert(fs::path(file).filename().string());
  EXPECT_EQ(left, (std::set<std::string>{"host-1.flight", "host-3.other", "host-5.flight"}));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  // 32 MiB are 182 of them; the oldest of 190 go.
  for (int i = 0; i < 190; ++i) {
    leave(folder, outrigger::format_text("host-{}.flight", 100 + i), i < 8 ? 22 : 3);
  }
  fs::remove(folder.path() + "/host-1.flight");
  fs::remove(folder.path() + "/host-5.flight");
  sweep_flights(folder.path());
  EXPECT_EQ(folder.files().size(), 182U + 1);
  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(fs::exists(folder.path() + outrigger::format_text("/host-{}.flight", 100 + i)));
  }
  sweep_flights(folder.path() + "/nowhere");
}

}  // namespace
}  // namespace outrigger::comm::test

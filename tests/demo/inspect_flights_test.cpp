// SPDX-License-Identifier: Apache-2.0
// outrigger inspect of flight recorders' files: whom it names, and what it refuses.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/observe/flight_recorder.h"
#include "core/observe/timeline.h"
#include "outrigger.h"
#include "process.h"

namespace outrigger::testing {
namespace {

using Json = nlohmann::ordered_json;
using observe::FlightEntry;
using observe::FlightRecorder;

const std::string kTool = OTR_TOOL;

// A rank's process, which does what it is told to its recorder and then waits.
class Player {
 public:
  explicit Player(FlightRecorder& recorder) : recorder_(recorder) {}

  int32_t join(uint64_t identity, int32_t rank, int32_t size, const std::string& name) {
    identities_.push_back(identity);
    numbers_.push_back(0);
    return recorder_.open({identity, rank, size, "shm", name});
  }
  FlightEntry begin(int32_t place, const char* what, const char* label, int64_t step = 0) {
    FlightEntry entry{};
    entry.group = identities_.at(static_cast<size_t>(place));
    entry.number = ++numbers_.at(static_cast<size_t>(place));
    entry.step = step;
    entry.bytes = 64;
    std::strcpy(entry.what, what);
    std::strcpy(entry.label, label);
    entry.begun = observe::now();
    EXPECT_TRUE(recorder_.begin(place, entry));
    return entry;
  }
  void end(int32_t place, FlightEntry entry, int32_t status = OTR_OK, int32_t culprit = -1) {
    entry.status = status;
    entry.culprit = culprit;
    entry.ended = observe::now();
    recorder_.end(place, entry);
  }
  void run(int32_t place, const char* what, const char* label, int64_t step = 0) {
    end(place, begin(place, what, label, step));
  }
  void fail(int32_t place, FlightEntry entry, int32_t status, int32_t culprit, const char* text) {
    end(place, entry, status, culprit);
    recorder_.fail(entry.group, status, culprit, text);
  }
  void hear(int32_t place, int32_t status, const char* text) {
    recorder_.fail(identities_.at(static_cast<size_t>(place)), status, -1, text);
  }

 private:
  FlightRecorder& recorder_;
  std::vector<uint64_t> identities_, numbers_;
};

class Played {
 public:
  Played(const std::string& folder, const std::function<void(Player&)>& part) {
    int ready[2];
    if (pipe(ready) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      FlightRecorder recorder({folder, true});
      Player player(recorder);
      part(player);
      if (write(ready[1], "x", 1) == 1) pause();
      _exit(1);
    }
    char byte = 0;
    if (read(ready[0], &byte, 1) != 1) throw std::runtime_error("the rank failed");
    close(ready[0]), close(ready[1]);
  }
  Played(const Played&) = delete;
  Played& operator=(const Played&) = delete;
  ~Played() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class InspectFlights : public ::testing::Test {
 protected:
  // In the order of what they do.
  pid_t play(const std::function<void(Player&)>& part) {
    ranks_.push_back(std::make_unique<Played>(folder_.file(""), part));
    return ranks_.back()->pid();
  }
  void kill(size_t index) { ranks_.at(index)->kill(); }
  [[nodiscard]] Json inspect(int code = 0, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{kTool, "inspect", folder_.file(""), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, code) << result.out << result.err;
    return Json::parse(result.out, nullptr, false);
  }
  [[nodiscard]] std::string verdict() const { return inspect()["verdict"].get<std::string>(); }
  static void expect(const std::string& text, const std::string& part) {
    EXPECT_EQ(count(text, part), 1) << part << " in " << text;
  }

  TemporaryFolder folder_;
  std::vector<std::unique_ptr<Played>> ranks_;
};

TEST_F(InspectFlights, ARankThatDoesNotComeIsNamed) {
  for (int32_t rank = 0; rank < 4; ++rank) {
    play([&](Player& p) {
      const int32_t main = p.join(11, rank, 4, "main");
      p.run(main, "barrier", "first", 3);
      if (rank != 2) p.begin(main, "reduce", "reduce gradients", 4);
    });
  }
  const Json all = inspect(0, {"--last", "5"});
  EXPECT_EQ(all["culprit"], 2);
  EXPECT_EQ(all["held_up"], Json({0, 1, 3}));
  EXPECT_EQ(all["missing"], Json::array());
  EXPECT_EQ(all["size"], 4);
  const auto text = all["verdict"].get<std::string>();
  expect(text, "rank 2 (process " + std::to_string(ranks_[2]->pid()));
  expect(text, "holds up the others: it has been in no operation for ");
  expect(text, "its last was barrier 'first' (operation 1 of 'main' of ranks 0-3, step 3)");
  expect(text,
         "ranks 0, 1, 3 wait for it, rank 0 in reduce 'reduce gradients' (operation 2 of "
         "'main' of ranks 0-3, step 4)");
  for (size_t rank = 0; rank < 4; ++rank) {
    const Json& r = all["ranks"][rank];
    EXPECT_EQ(r["rank"], rank);
    EXPECT_EQ(r["process"], ranks_[rank]->pid());
    EXPECT_EQ(r["state"], rank == 2 ? "runs" : "waits");
    EXPECT_EQ(r["process_is"], "runs");
    EXPECT_EQ(r["last_finished"]["label"], "first");
    EXPECT_EQ(r["last_finished"]["bytes"], 64);
    EXPECT_EQ(r["operations"].size(), 1U);
    EXPECT_EQ(r["in"].is_null(), rank == 2);
  }
}

TEST_F(InspectFlights, AKilledRankIsNamedThoughItWaitedItself) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    play([&](Player& p) {
      const int32_t main = p.join(11, rank, 3, "main");
      p.run(main, "barrier", "first");
      if (rank > 0) p.begin(main, "all_gather", "second");
    });
  }
  kill(1);
  const Json all = inspect();
  // Rank 0 is late, but rank 1 will never come again.
  EXPECT_EQ(all["ranks"][1]["state"], "gone");
  EXPECT_EQ(all["ranks"][1]["in"]["label"], "second");
  EXPECT_EQ(all["culprit"], 1) << all["verdict"];
  expect(all["verdict"],
         "is gone: its process ended in all_gather 'second' (operation 2 of 'main'");
}

TEST_F(InspectFlights, WhoIsToBlameIsFoundOverGroups) {
  // 0 waits for 1 on its host, 1 for 3 across hosts, and 3 is in no operation.
  for (int32_t rank = 0; rank < 4; ++rank) {
    play([&](Player& p) {
      p.run(p.join(1, rank, 4, "all"), "barrier", "start");
      const auto host_number = static_cast<uint64_t>(10 + rank / 2);
      const int32_t host = p.join(host_number, rank % 2, 2, "host");
      const int32_t across = p.join(static_cast<uint64_t>(20 + rank % 2), rank / 2, 2, "across");
      p.run(host, "reduce", "before");
      if (rank == 1) p.begin(across, "reduce", "sums");
      if (rank != 1 && rank != 3) p.begin(host, "all_gather_window", "weights");
    });
  }
  const Json all = inspect();
  EXPECT_EQ(all["culprit"], 3) << all["verdict"];
  EXPECT_EQ(all["held_up"], Json({0, 1, 2}));
  expect(all["verdict"], "of 'host' of ranks 2, 3");
}

TEST_F(InspectFlights, AnErrorNamesARankByItsNumberInALargerGroup) {
  for (int32_t rank = 0; rank < 4; ++rank) {
    play([&](Player& p) {
      p.run(p.join(1, rank, 4, "all"), "barrier", "start");
      const int32_t host = p.join(static_cast<uint64_t>(10 + rank / 2), rank % 2, 2, "host");
      if (rank == 3) return;
      const FlightEntry entry = p.begin(host, "reduce", "gradients");
      const bool beside = rank == 2;  // it sees the process; the others are told of "rank 3 of all"
      p.fail(host, entry, OTR_E_PEER_DEAD, beside ? 1 : ~(3 + 1), "rank 3 of all, …: ended");
    });
  }
  kill(3);
  kill(0);
  const Json all = inspect();
  EXPECT_EQ(all["culprit"], 3) << all["verdict"];
  EXPECT_EQ(all["held_up"], Json({0, 1, 2}));
  EXPECT_EQ(all["ranks"][0]["state"], "OTR_E_PEER_DEAD");
  EXPECT_EQ(all["ranks"][3]["state"], "gone");
  expect(all["verdict"], "its process ended outside of any operation");
}

TEST_F(InspectFlights, AnErrorOfARanksOwnIsTold) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    play([&](Player& p) {
      const int32_t main = p.join(11, rank, 3, "main");
      const FlightEntry entry = p.begin(main, "reduce", "gradients");
      if (rank == 1) p.fail(main, entry, OTR_E_ABORTED, -1, "its fold threw: no memory");
      if (rank != 1) p.fail(main, entry, OTR_E_ABORTED, 1, "rank 1 aborted the job");
    });
  }
  expect(verdict(), "failed first: its fold threw: no memory; ranks 0, 2 wait for it");
  EXPECT_EQ(inspect()["culprit"], 1);
}

TEST_F(InspectFlights, FunctionsThatFailBecauseAProcessIsGoneNameNobody) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    play([&](Player& p) {
      const int32_t main = p.join(11, rank, 3, "main");
      p.run(main, "barrier", "first");
      if (rank == 2) return;
      if (rank == 1) return p.hear(main, OTR_E_HOST, "told between two operations");
      const FlightEntry entry = p.begin(main, "barrier", "second");
      p.fail(main, entry, OTR_E_HOST, -1, "the communicator's all_gather returned 7");
    });
  }
  kill(2);
  EXPECT_EQ(inspect()["culprit"], 2);
  EXPECT_EQ(inspect()["held_up"], Json({0, 1}));
}

TEST_F(InspectFlights, ARankOfAnotherHostIsMissing) {
  for (const int32_t rank : {0, 2}) {
    play([&](Player& p) {
      const int32_t main = p.join(11, rank, 4, "main");
      p.begin(main, "barrier", "alone");
    });
  }
  const Json all = inspect();
  EXPECT_EQ(all["missing"], Json({1, 3}));
  EXPECT_EQ(all["culprit"], 1);
  expect(all["verdict"], "rank 1 held up the others, and there is no file of it here");
  const Result shown = run({kTool, "inspect", folder_.file("")});
  EXPECT_EQ(shown.code, 0);
  expect(shown.out, "ranks 1, 3: no file here");
}

TEST_F(InspectFlights, TheLastJobIsShownAndOthersByProcess) {
  const pid_t first = play([](Player& p) { p.run(p.join(1, 0, 1, "older"), "barrier", "old"); });
  usleep(2000);
  const pid_t second = play([](Player& p) { p.run(p.join(2, 0, 1, "newer"), "barrier", "new"); });
  EXPECT_EQ(inspect()["jobs"], 2);
  EXPECT_EQ(inspect()["ranks"][0]["process"], second);
  EXPECT_EQ(inspect()["verdict"], "no rank waits for another, and none has failed");
  EXPECT_EQ(inspect(0, {"--process", std::to_string(first)})["ranks"][0]["process"], first);
  const Result shown = run({kTool, "inspect", folder_.file("")});
  expect(shown.out, "1 other job here: --process " + std::to_string(first));
  const Json none = inspect(2, {"--process", "1"});
  EXPECT_EQ(none["error"]["status"], "OTR_E_NOT_FOUND");
  // Without a folder: where they are written.
  const Result there =
      run({kTool, "inspect", "--json"}, {{"OTR_FLIGHT_RECORDER", folder_.file("")}});
  EXPECT_EQ(Json::parse(there.out)["ranks"][0]["process"], second);
}

// The one file of the folder, changed.
void change(const std::string& folder, const std::function<void(std::string&)>& how) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string bytes = read_text(entry.path().string());
    how(bytes);
    std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << bytes;
  }
}

TEST_F(InspectFlights, DamagedFilesAreRefusedByReason) {
  struct Damage {
    const char *status, *part;
    std::function<void(std::string&)> how;
  };
  const std::vector<Damage> damages{
      {"OTR_E_CORRUPT", "is no file of a flight recorder", [](auto& b) { b[0] ^= 1; }},
      {"OTR_E_CORRUPT", "is no file of a flight recorder", [](auto& b) { b.clear(); }},
      {"OTR_E_CORRUPT", "is no file of a flight recorder", [](auto& b) { b.resize(4095); }},
      {"OTR_E_UNSUPPORTED", "is of version 77", [](auto& b) { b[8] = 77; }},
      {"OTR_E_CORRUPT", "its header is damaged", [](auto& b) { b[12] = 1; }},
      {"OTR_E_CORRUPT", "has 184319 bytes, and 184320 are right", [](auto& b) { b.pop_back(); }},
      {"OTR_E_CORRUPT", "has 184320 bytes and more", [](auto& b) { b += "x"; }},
      {"OTR_E_CORRUPT", "group 0 says that it is rank 9 of 1", [](auto& b) { b[4096 + 8] = 9; }},
      {"OTR_E_CORRUPT", "group 0 says that it is rank 0 of 0", [](auto& b) { b[4096 + 12] = 0; }},
  };
  for (const Damage& damage : damages) {
    const TemporaryFolder folder;
    Played rank(folder.file(""), [](Player& p) { p.run(p.join(1, 0, 1, "one"), "barrier", "b"); });
    rank.kill();
    change(folder.file(""), damage.how);
    const Result result = run({kTool, "inspect", folder.file(""), "--json"});
    EXPECT_EQ(result.code, 2) << result.out;
    const Json json = Json::parse(result.out, nullptr, false);
    EXPECT_EQ(json["error"]["status"], damage.status) << json;
    expect(json["error"]["message"], damage.part);
  }
}

// Whatever the bytes are: an answer or an error, and no other end.
TEST_F(InspectFlights, AnyBytesAreReadWithoutHarm) {
  play([](Player& p) {
    const int32_t one = p.join(1, 0, 2, "one");
    for (int i = 0; i < 40; ++i) p.run(one, "barrier", "\x1b[31mred\n");
    const FlightEntry entry = p.begin(one, "barrier", "last");
    p.fail(one, entry, OTR_E_PEER_DEAD, 1, "\x1b]0;title\x07");
  });
  kill(0);
  const Result plain = run({kTool, "inspect", folder_.file(""), "--last", "1024"});
  EXPECT_EQ(plain.code, 0);
  EXPECT_EQ(count(plain.out, "\x1b"), 0) << "of a file that anybody may have written";
  uint32_t seed = 12345;
  for (int turn = 0; turn < 60; ++turn) {
    change(folder_.file(""), [&](std::string& bytes) {
      for (int i = 0; i < 200; ++i) {
        seed = seed * 1664525 + 1013904223;
        const size_t at = 40 + (seed >> 8) % 30000;  // behind what says that it is such a file
        bytes[at] = static_cast<char>(seed >> 24);
      }
    });
    const Result result = run({kTool, "inspect", folder_.file(""), "--last", "1024"});
    EXPECT_TRUE(result.code == 0 || result.code == 2) << result.code << result.err;
  }
}

TEST_F(InspectFlights, ADamagedFileDoesNotHideTheOthers) {
  play([](Player& p) { p.run(p.join(1, 0, 1, "one"), "barrier", "b"); });
  std::ofstream(folder_.file("other.flight")) << "something else";
  std::ofstream(folder_.file("unwritten.flight")) << std::string(184320, '\0');
  const Json all = inspect(1);
  EXPECT_EQ(all["ranks"].size(), 1U);
  ASSERT_EQ(all["damaged"].size(), 1U);
  expect(all["damaged"][0], "other.flight is no file of a flight recorder");
}

TEST_F(InspectFlights, WrongUseIsRefused) {
  const auto message = [&](const std::vector<std::string>& words) {
    std::vector<std::string> command{kTool, "inspect"};
    command.insert(command.end(), words.begin(), words.end());
    const Result result = run(command);
    EXPECT_EQ(result.code, 2) << result.out;
    return result.err;
  };
  expect(message({folder_.file(""), "--last", "3"}), "--process and --last are for them");
  play([](Player& p) { p.run(p.join(1, 0, 1, "one"), "barrier", "b"); });
  expect(message({folder_.file(""), "--verify"}), "--tag, --verify and --diff are for checkpoints");
  EXPECT_NE(message({folder_.file(""), "--last", "1025"}), "");
  EXPECT_NE(message({folder_.file(""), "--process", "0"}), "");
  expect(message({folder_.file("none.flight")}), "cannot open");
  const Result off = run({kTool, "inspect"}, {{"OTR_FLIGHT_RECORDER", "off"}});
  EXPECT_EQ(off.code, 2);
  expect(off.err, "OTR_FLIGHT_RECORDER is \"off\": name a folder");
}

// ---- outrigger trace: events of ranks whose clocks are apart

std::string trace_of(const std::string& clock, const std::string& time) {
  return R"([
{"pid":7,"tid":0,"ph":"M","name":"process_name","args":{"name":"rank"}},
{"pid":7,"tid":1,"ph":"X","name":"early","ts":)" +
         time + R"(,"dur":2.500,"args":{"what":"\"ts\":1.000"}},
)" + clock +
         R"({"pid":7,"tid":1,"ph":"X","name":"late","ts":)" + time + R"(,"dur":1.000,"args":{}},
)";
}

std::string clock_line(const std::string& offset, const std::string& bound) {
  return R"({"pid":7,"tid":0,"ph":"M","name":"clock","args":{"offset_ns":)" + offset +
         R"(,"bound_ns":)" + bound + "}},\n";
}

TEST(Trace, TimesAreThoseOfRank0sClock) {
  const TemporaryFolder folder;
  static_cast<void>(folder.write("rank-0.trace.json", trace_of(clock_line("0", "0"), "1000.000")));
  static_cast<void>(
      folder.write("rank-1.trace.json", trace_of(clock_line("1500250", "40000"), "2600.500")));
  static_cast<void>(
      folder.write("rank-2.trace.json", trace_of(clock_line("-2500000", "90000"), "0.001")));
  static_cast<void>(folder.write("rank-3.trace.json", trace_of("", "77.000")));
  // What makes no sense changes nothing.
  static_cast<void>(
      folder.write("rank-4.trace.json", trace_of(clock_line("\"x\"", "1"), "78.000")));
  const std::string out = folder.file("all.json");
  const Result result = run({kTool, "trace", folder.file(""), "-o", out});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(
      count(result.out, "clocks of hosts: up to 2.500 ms apart, corrected to within 0.090 ms"), 1)
      << result.out;
  const Json all = Json::parse(read_text(out));
  const std::vector<double> wanted{1000, 1100.25, 2500.001, 77, 78};
  std::vector<int> seen(5, 0);
  for (const Json& event : all) {
    if (event["ph"] != "X") continue;
    const auto file = event["pid"].get<size_t>() - 1;
    EXPECT_DOUBLE_EQ(event["ts"].get<double>(), wanted.at(file)) << event;
    if (event["name"] == "early") {
      EXPECT_EQ(event["dur"], 2.5);
      EXPECT_EQ(event["args"]["what"], "\"ts\":1.000") << "of the text, nothing";
    }
    ++seen.at(file);
  }
  EXPECT_EQ(seen, std::vector<int>(5, 2));
  const Json told =
      Json::parse(run({kTool, "trace", folder.file(""), "-o", out, "--replace", "--json"}).out);
  EXPECT_EQ(told["clocks"]["largest_offset_ns"], 2500000);
  EXPECT_EQ(told["clocks"]["bound_ns"], 90000);
}

}  // namespace
}  // namespace outrigger::testing

// SPDX-License-Identifier: Apache-2.0
// The commands that look and tell: doctor, config, version; and what docs/tools.md shows of all.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "process.h"

namespace outrigger::testing {
namespace {

using Json = nlohmann::ordered_json;

const std::string kTool = OTR_TOOL;

// ---- doctor

TEST(Doctor, TellsOfTheMachineAndTrainsInTwoProcesses) {
  const Result result = run({kTool, "doctor"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* part : {"cores", "memory", "huge pages", "locked memory", "shared memory",
                           "instructions", "communicators", "plugins"}) {
    EXPECT_EQ(count("\n" + result.out, std::string("\n") + part + "  "), 1) << part << result.out;
  }
  EXPECT_EQ(count(result.out, "self-test       passed in "), 1) << result.out;
  EXPECT_EQ(count(result.out, "engine_step"), 1);
  EXPECT_LT(result.seconds, 30);
}

TEST(Doctor, IsOneJsonDocument) {
  const Result result = run({kTool, "doctor", "--json"});
  EXPECT_EQ(result.code, 0);
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["well"], true);
  EXPECT_EQ(json["self_test"]["passed"], true) << json["self_test"];
  EXPECT_EQ(json["self_test"]["phase_seconds"].size(), 4U);
  EXPECT_GT(json["machine"]["memory"]["total_bytes"], 0);
  for (const Json& finding : json["findings"]) EXPECT_EQ(finding["severity"], "advice") << finding;
}

TEST(Doctor, IsNotConfusedByAnotherJobsVariables) {
  const Result result = run({kTool, "doctor"}, {{"OTR_JOB", "other"},
                                                {"RANK", "3"},
                                                {"WORLD_SIZE", "5"},
                                                {"OMPI_COMM_WORLD_RANK", "1"},
                                                {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
}

TEST(Doctor, FindsAnInstructionSetThatIsNotHere) {
  const Environment odd{{"OTR_SIMD", "AV\"X9"}};
  const Result result = run({kTool, "doctor"}, odd);
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(count(result.out, "problem: OTR_SIMD=AV\"X9 is not an instruction set usable here"), 1)
      << result.out;
  EXPECT_EQ(count(result.out, "problem: the self-test failed: attach failed on rank 0"), 1);
  const Json json = Json::parse(run({kTool, "doctor", "--json"}, odd).out);
  EXPECT_EQ(json["well"], false);
  EXPECT_EQ(json["findings"][0]["severity"], "problem");
  EXPECT_EQ(json["self_test"]["passed"], false);
  // The library's own text about it is JSON, too.
  EXPECT_EQ(count(Json::parse(run({kTool, "version", "--json"}, odd).out)["simd_error"], "AV\"X9"),
            1);
}

TEST(Doctor, EndsASelfTestThatTakesTooLong) {
  const Result result = run({kTool, "doctor", "--timeout", "0.001"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(count(result.out, "was not done on rank 0 after 0.001 s"), 1) << result.out;
  EXPECT_LT(result.seconds, 20);
}

TEST(Doctor, AdvisesOnALowLimitOfLockedMemory) {
  const Result result = run({"sh", "-c", "ulimit -l 64 && exec " + kTool + " doctor"});
  EXPECT_EQ(result.code, 0) << "advice is no problem: " << result.out;
  EXPECT_EQ(count(result.out, "advice: only 64 KiB may be locked (RLIMIT_MEMLOCK)"), 1)
      << result.out;
}

TEST(Doctor, RefusesAWrongCall) {
  EXPECT_EQ(run({kTool, "doctor", "--timeout", "0"}).code, 2);
  EXPECT_EQ(run({kTool, "doctor", "now"}).code, 2);
}

// ---- inspect

TEST(Inspect, NamesTheDamagedTensorAndWhatDiffers) {
  const TemporaryFolder folder;
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const std::string first = folder.write("1", bytes + header + std::string(12, '\0'));
  const std::string nan = folder.write("2", bytes + header + std::string(8, '\0') + "\1\1\xC0\x7F");
  const std::string made = folder.file("made");
  for (const auto& [source, tag] : {std::pair(first, "x"), std::pair(nan, "y")}) {
    const Result result = run({kTool, "import", source, made, "--tag", tag, "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(Json::parse(result.out)["tag"], tag);
  }
  const Result differs = run({kTool, "inspect", made, "--diff", made, "--diff-tag", "x", "--json"});
  EXPECT_EQ(differs.code, 1);
  const Json json = Json::parse(differs.out);
  EXPECT_EQ(json["tag"], "y");
  EXPECT_EQ(json["tags"], Json::array({"x", "y"}));
  EXPECT_EQ(json["differences"].dump(),
            R"([{"parameter":"b","state":"master","what":"the values differ","differing":1,)"
            R"("max_abs":null}])");
  EXPECT_EQ(run({kTool, "inspect", made, "--verify"}).code, 0);
  const std::string path = made + "/y/rank-00000.safetensors";
  std::string damaged = read_text(path);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  static_cast<void>(folder.write("made/y/rank-00000.safetensors", damaged));
  const Result verified = run({kTool, "inspect", made, "--verify", "--json"});
  EXPECT_EQ(verified.code, 1) << verified.out;
  const Json told = Json::parse(verified.out);
  EXPECT_EQ(told["verified"], false);
  EXPECT_EQ(count(told["damage"], "rank-00000.safetensors: tensor 'b/master'"), 1)
      << told["damage"];
  damaged[damaged.size() - 5] = static_cast<char>(damaged[damaged.size() - 5] ^ 1);
  static_cast<void>(folder.write("made/y/rank-00000.safetensors", damaged));
  const Result both = run({kTool, "inspect", made, "--verify"});
  EXPECT_EQ(both.code, 1) << both.out;
  EXPECT_EQ(count(both.out, "2 damages; the first: "), 1) << both.out;
  EXPECT_EQ(count(both.out, "tensor 'a/master'"), 1) << both.out;
  EXPECT_EQ(count(both.out, "tensor 'b/master'"), 1) << both.out;
  EXPECT_EQ(run({kTool, "inspect", made, "--tag", "x", "--verify"}).code, 0);
  EXPECT_EQ(run({kTool, "inspect", made, "--tag", "z"}).code, 2);
  EXPECT_EQ(run({kTool, "inspect", made, "--diff-tag", "x"}).code, 2);
  EXPECT_EQ(run({kTool, "import", first, made, "--tag", "x"}).code, 1);
  EXPECT_EQ(run({kTool, "import", first, made, "--tag", "x", "--replace"}).code, 0);
  EXPECT_EQ(run({kTool, "export", made, folder.file("w"), "--dtype", "int8"}).code, 2);
}

// A name that would clear the terminal.
TEST(Inspect, ShowsNoControlCharacters) {
  const TemporaryFolder folder;
  const std::string header =
      R"({"a\u001b[2J\u009b1m":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const std::string made = folder.file("made");
  const std::string source = folder.write("1", bytes + header + std::string(4, '\0'));
  ASSERT_EQ(run({kTool, "import", source, made}).code, 0);
  const Result told = run({kTool, "inspect", made});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_EQ(count(told.out, "a?[2J??1m"), 1) << told.out;
  EXPECT_EQ(told.out.find('\x1B'), std::string::npos);
}

// ---- config, version, and misuse as JSON

TEST(Config, PrintsWhatIsInEffectOrWhyNot) {
  const TemporaryFolder folder;
  const std::string good = folder.write("good.json", R"({"zero_optimization": {"stage": 3}})");
  const Result printed = run({kTool, "config", good, "--world", "2"});
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_EQ(Json::parse(printed.out)["zero_optimization"]["stage"]["value"], 3);
  EXPECT_EQ(printed.err, "");
  Json as_json = Json::parse(run({kTool, "config", good, "--world", "2", "--json"}).out);
  EXPECT_EQ(as_json["warnings"], Json::array());
  as_json.erase("warnings");
  EXPECT_EQ(as_json.dump(2) + "\n", printed.out);
  const std::string bad = folder.write("bad.json", R"({"zero_optimisation": {"stage": 3}})");
  const Result refused = run({kTool, "config", bad});
  EXPECT_EQ(refused.code, 1);
  EXPECT_GE(count(refused.err, "OTR_E_CONFIG"), 1) << refused.err;
  EXPECT_GE(count(refused.err, "bad.json"), 1) << refused.err;
  EXPECT_GE(count(refused.err, "zero_optimization"), 1) << "the nearest known key: " << refused.err;
  const Result absent = run({kTool, "config", folder.file("absent.json")});
  EXPECT_EQ(absent.code, 2);
  EXPECT_EQ(absent.err,
            "cannot open " + folder.file("absent.json") + ": No such file or directory\n");
}

TEST(Config, TellsTheWarningsOfTheLibrary) {
  const TemporaryFolder folder;
  const std::string old = R"({"zero_optimization": {
  "cpu_offload": false}, "train_batch_size": 8})";
  const std::string part = "is an old key; write zero_optimization.offload_optimizer.device";
  const std::string file = folder.write("old.json", old);
  EXPECT_EQ(count(run({kTool, "config", file}).err,
                  "warning: " + file + ": line 2, column 18: zero_optimization.cpu_offload"),
            1);
  const Json json = Json::parse(run({kTool, "config", file, "--json"}).out);
  ASSERT_EQ(json["warnings"].size(), 1U) << json["warnings"];
  EXPECT_EQ(count(json["warnings"][0], part), 1);
  // A batch that is right for two ranks only.
  const std::string both = folder.write(
      "both.json",
      old.substr(0, old.size() - 1) +
          R"(, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2})");
  const Result two = run({kTool, "config", both, "--world", "2"});
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(count(two.err, "warning: " + both + ": zero_optimization.cpu_offload = false " + part),
            1)
      << two.err;
}

struct Misuse {
  std::vector<std::string> words;
  std::string status, part;
};

TEST(Json, TellsFaultsOnStandardOutput) {
  const TemporaryFolder folder;
  const std::string bad = folder.write("bad.json", R"({"zero_optimisation": {"stage": 3}})");
  const std::vector<Misuse> cases{
      {{"config", bad, "--json"}, "OTR_E_CONFIG", "zero_optimization"},
      {{"--json", "config", bad}, "OTR_E_CONFIG", "zero_optimization"},
      {{"config", folder.file("absent"), "--json"}, "OTR_E_SYSTEM", "absent"},
      {{"config", "--json"}, "OTR_E_ARGUMENT", "file"},
      {{"doctor", "--json", "--frob"}, "OTR_E_ARGUMENT", "--frob"},
      {{"frob", "--json"}, "OTR_E_ARGUMENT", "\"frob\"; there are run, config, "},
      {{"--json", "runn"}, "OTR_E_ARGUMENT", "\"runn\"; the nearest is run; there are run, "},
      {{"doctor", "--json", "now"}, "OTR_E_ARGUMENT", "\"now\" is one argument too many"},
      {{"--json"}, "OTR_E_ARGUMENT", "no command"}};
  for (const Misuse& misuse : cases) {
    std::vector<std::string> command{kTool};
    command.insert(command.end(), misuse.words.begin(), misuse.words.end());
    const Result result = run(command);
    EXPECT_EQ(result.code, 2) << misuse.part;
    EXPECT_EQ(result.err, "");
    const auto json = Json::parse(result.out, nullptr, false);
    ASSERT_TRUE(json.contains("error")) << result.out;
    EXPECT_EQ(json["error"]["status"], misuse.status);
    EXPECT_NE(json["error"]["message"].get<std::string>().find(misuse.part), std::string::npos)
        << json;
  }
}

TEST(Version, IsThatOfTheLibrary) {
  for (const char* word : {"--version", "version"}) {
    const Result result = run({kTool, word});
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out.rfind("outrigger " OTR_EXPECTED_VERSION " (ABI ", 0), 0U) << result.out;
    const Result json = run({kTool, word, "--json"});
    EXPECT_EQ(json.code, 0);
    EXPECT_EQ(Json::parse(json.out)["version"], OTR_EXPECTED_VERSION);
  }
}

// ---- docs/tools.md and docs/watching.md: commands after "$ " in ```console blocks, with what they
// print; "…" stands for any text.

bool matches(const std::string& text, const std::string& pattern) {
  const std::string any = "…";
  size_t at = 0, begin = 0;
  for (;;) {
    const size_t end = std::min(pattern.find(any, begin), pattern.size());
    const std::string part = pattern.substr(begin, end - begin);
    const bool last = end == pattern.size();
    if (last)
      return text.size() >= at + part.size() && text.ends_with(part) &&
             (begin > 0 || text.size() == part.size());
    const size_t found = text.find(part, at);
    if (found == text.npos || (begin == 0 && found != 0)) return false;
    at = found + part.size();
    begin = end + any.size();
  }
}

TEST(Documentation, NamesTheLinesOfDoctor) {
  const std::string real = run({kTool, "doctor"}).out;
  const std::string page = read_text(OTR_TOOLS_PAGE);
  const size_t begin = page.find("```text\n") + 8;
  std::istringstream shown(page.substr(begin, page.find("```", begin) - begin));
  int lines = 0;
  for (std::string line; std::getline(shown, line); ++lines) {
    EXPECT_EQ(count("\n" + real, "\n" + line.substr(0, 16)), 1) << line;
  }
  EXPECT_GE(lines, 12);
  EXPECT_EQ(count(real.substr(0, real.find("\n\n") + 1), "\n"), lines)
      << "and no more before advice";
}

// The commands of a page, in one folder; returns how many there are.
int run_commands_of(const char* path) {
  const TemporaryFolder folder;
  const std::string tools = std::filesystem::path(kTool).parent_path();
  const std::string examples = std::filesystem::path(OTR_QUICKSTART).parent_path();
  std::istringstream page(read_text(path));
  std::string command, expected;
  int commands = 0;
  bool console = false;
  const auto finish = [&] {
    if (command.empty()) return;
    const Result result =
        run({"sh", "-c",
             "PATH=" + tools + ":" + examples + ":$PATH; cd " + folder.file("") + "; " + command});
    EXPECT_TRUE(matches(result.out + result.err, expected))
        << "$ " << command << "\n"
        << result.out << result.err << "instead of\n"
        << expected;
    ++commands;
    command.clear();
    expected.clear();
  };
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("```", 0) == 0) {
      finish();
      console = line == "```console";
    } else if (console && line.rfind("$ ", 0) == 0) {
      finish();
      command = line.substr(2);
    } else if (console) {
      expected += line + "\n";
    }
  }
  return commands;
}

TEST(Documentation, ShowsWhatTheCommandsPrint) {
  EXPECT_GE(run_commands_of(OTR_TOOLS_PAGE), 8);
  EXPECT_GE(run_commands_of(OTR_WATCHING_PAGE), 3);
}

}  // namespace
}  // namespace outrigger::testing

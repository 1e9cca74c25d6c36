// SPDX-License-Identifier: Apache-2.0
// `outrigger run --max-restarts`: when a run is started again, when not, and what the next attempt
// finds. (A training that is killed: tests/bindings/test_restarts.py.)
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "../core/shared_memory.h"
#include "process.h"
#include "tool.h"

namespace outrigger::testing {
namespace {

std::multiset<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_text(path));
  std::multiset<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.insert(line);
  return lines;
}

class Restart : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string seen_ = folder_.file("seen");
};

TEST_F(Restart, StartsAllAgainUntilAllEndWell) {
  const Result result =
      run(shell({"-n", "3", "--max-restarts", "5", "--restart-pause", "0"},
                "echo rank $RANK, $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS >> " +
                    seen_ +
                    "; [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && kill -9 $$;"
                    "[ $RANK = 2 ] && [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 4; exit 0"),
          {{"TORCHELASTIC_RESTART_COUNT", "7"}});
  EXPECT_EQ(result.code, 0) << result.err;
  std::multiset<std::string> expected;
  for (const char* attempt : {"0", "1", "2"}) {
    for (const char* rank : {"0", "1", "2"}) {
      expected.insert(std::string("rank ") + rank + ", " + attempt + " of 5");
    }
  }
  EXPECT_EQ(lines_of(seen_), expected);
  const size_t first = result.err.find("; restart 1 of 5 now\n");
  ASSERT_NE(first, std::string::npos) << result.err;
  const size_t begin = result.err.rfind('\n', first) + 1;
  const std::string line = result.err.substr(begin, first - begin);
  EXPECT_EQ(line.rfind("outrigger run: rank 1 (process ", 0), 0U) << line;
  EXPECT_EQ(count(line, ") was killed by signal 9 (Killed) after "), 1) << line;
  EXPECT_EQ(count(result.err, "; restart 2 of 5 now\n"), 1) << result.err;
  EXPECT_EQ(count(result.err, "; restart "), 2) << result.err;
}

TEST_F(Restart, HasFewerWorkersWhereOneWasKilled) {
  const std::string lines =
      "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at $TORCHELASTIC_RESTART_COUNT "
      ">> " +
      seen_;
  const Result result =
      run(shell({"-n", "4", "--max-restarts", "5", "--min-workers", "2", "--restart-pause", "0"},
                lines + "; [ $RANK = 1 ] || exit 0; case $TORCHELASTIC_RESTART_COUNT in "
                        "0) kill -9 $$;; 1) exit 7;; 2) sh -c 'kill -11 $$'; exit $?;; "
                        "3) kill -15 $$;; 4) exit 255;; esac"));
  EXPECT_EQ(result.code, 0) << result.err;
  std::multiset<std::string> expected;
  const std::vector<int> worlds{4, 3, 3, 2, 2, 2};  // killed, ended, killed, killed, ended
  for (size_t attempt = 0; attempt < worlds.size(); attempt++) {
    const std::string world = std::to_string(worlds[attempt]);
    for (int rank = 0; rank < worlds[attempt]; rank++) {
      const std::string place = std::to_string(rank) + " of " + world;
      expected.insert(place + ", " + place + " at " + std::to_string(attempt));
    }
  }
  EXPECT_EQ(lines_of(seen_), expected);
  for (const char* text : {"; restart 1 of 5 with 3 ranks now\n", "; restart 2 of 5 now\n",
                           "; restart 3 of 5 with 2 ranks now\n", "; restart 4 of 5 now\n",
                           "; restart 5 of 5 now\n"}) {
    EXPECT_EQ(count(result.err, text), 1) << text << result.err;
  }
}

TEST_F(Restart, HasAsManyWorkersUnlessFewerWillDo) {
  const Result result =
      run(shell({"-n", "2", "--max-restarts", "2", "--restart-pause", "0"},
                "echo $WORLD_SIZE >> " + seen_ + "; [ $RANK = 0 ] || kill -9 $$"));
  EXPECT_EQ(result.code, 128 + 9) << result.err;
  EXPECT_EQ(lines_of(seen_), (std::multiset<std::string>{"2", "2", "2", "2", "2", "2"}));
}

TEST_F(Restart, UsesThemUpWithGrowingPausesAndReturnsTheLastFailure) {
  const Result result =
      run(shell({"--max-restarts", "3", "--restart-pause", "0.01", "--json"},
                "echo >> " + seen_ + "; exit $((3 + TORCHELASTIC_RESTART_COUNT))"));
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_EQ(lines_of(seen_).size(), 4U);
  for (const char* text : {"; restart 1 of 3 in 0.01 s\n", "; restart 2 of 3 in 0.02 s\n",
                           "; restart 3 of 3 in 0.04 s\n"}) {
    EXPECT_EQ(count(result.err, text), 1) << text << result.err;
  }
  const nlohmann::json summary =
      nlohmann::json::parse(result.err.substr(result.err.rfind("\n{") + 1));
  EXPECT_EQ(summary["restarts"], 3);
  EXPECT_EQ(summary["exit_code"], 6);
  EXPECT_EQ(summary["workers"].size(), 1U);
  EXPECT_EQ(summary["workers"][0]["exit_code"], 6);
}

TEST_F(Restart, IsNotAskedForByDefaultNorAfterACleanEnd) {
  EXPECT_EQ(run(shell({}, "echo >> " + seen_ + "; exit 3")).code, 3);
  EXPECT_EQ(lines_of(seen_).size(), 1U);
  const Result good = run(shell({"--max-restarts", "3"}, "echo >> " + seen_));
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(good.err, "");
  EXPECT_EQ(lines_of(seen_).size(), 2U);
}

TEST_F(Restart, DoesNotFollowASignalToTheLauncher) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Process process(
        shell({"-n", "2", "-v", "--max-restarts", "3", "--restart-pause", "0"}, "exec sleep 30"));
    ASSERT_TRUE(process.wait_for_error_text("rank 1 is process", 10));
    kill(process.pid(), number);
    const Result result = process.finish();
    EXPECT_EQ(result.code, 128 + number);
    EXPECT_EQ(count(result.err, "rank 0 is process"), 1) << result.err;
    EXPECT_EQ(count(result.err, "; restart "), 0) << result.err;
  }
}

TEST_F(Restart, IsCalledOffByASignalInThePause) {
  Process process(shell({"--max-restarts", "3", "--restart-pause", "3600", "--json"},
                        "echo >> " + seen_ + "; exit 3"));
  ASSERT_TRUE(process.wait_for_error_text("; restart 1 of 3 in 3600 s\n", 10));
  kill(process.pid(), SIGTERM);
  const Result result = process.finish();
  EXPECT_EQ(result.code, 128 + SIGTERM) << result.err;
  EXPECT_EQ(count(result.err, "ended by signal 15 before the restart\n"), 1) << result.err;
  EXPECT_EQ(count(result.err, "{\"exit_code\":143,\"restarts\":0,"), 1) << result.err;
  EXPECT_EQ(lines_of(seen_).size(), 1U);
}

// The trainer behind a wrapper script is gone before there is another one.
TEST_F(Restart, FindsNothingOfTheFormerAttempt) {
  const Result result =
      run(shell({"-n", "2", "--max-restarts", "1", "--restart-pause", "0", "--grace", "0"},
                "file=" + seen_ +
                    ".$RANK; if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 4711 & echo $! > "
                    "$file; while [ ! -s " +
                    seen_ + ".0 ] || [ ! -s " + seen_ +
                    ".1 ]; do sleep 0.01; done; [ $RANK = 1 ] && kill -9 $$; wait; fi; "
                    "kill -0 $(cat $file) 2> /dev/null && exit 9; echo id $TORCHELASTIC_RUN_ID"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count(result.out, "id outrigger-"), 1) << result.out;
  EXPECT_EQ(count(result.err, "[rank 1] " + result.out), 1) << result.err;
}

TEST_F(Restart, KeepsTheNameOfTheRun) {
  const Result result = run(
      shell({"--max-restarts", "1", "--restart-pause", "0"}, "echo $TORCHELASTIC_RUN_ID; exit 1"));
  const size_t half = result.out.size() / 2;
  ASSERT_GT(half, 10U);
  EXPECT_EQ(result.out.substr(0, half), result.out.substr(half));
}

TEST_F(Restart, IsNoUseForAProgramThatIsNotThere) {
  const Result result = run({kTool, "run", "--max-restarts", "5", "--", "no-such-program"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "outrigger: cannot start 'no-such-program': No such file or directory\n");
}

TEST_F(Restart, NamesWhatIsWrongWithItsCall) {
  for (const auto& [option, value] : {std::pair{"--max-restarts", "-1"},
                                      {"--max-restarts", "x"},
                                      {"--restart-pause", "nan"},
                                      {"--restart-pause", "-1"},
                                      {"--max-restarts", "1.5"},
                                      {"--min-workers", "0"},
                                      {"--min-workers", "two"}}) {
    const Result result = run({kTool, "run", option, value, "--", "true"});
    EXPECT_EQ(result.code, 2) << option << value;
    EXPECT_NE(result.err.find(option), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(value), std::string::npos) << result.err;
  }
  const Result more =
      run({kTool, "run", "-n", "2", "--max-restarts", "1", "--min-workers", "3", "--", "true"});
  EXPECT_EQ(more.code, 2);
  EXPECT_NE(more.err.find("--min-workers 3 is more than the 2 of -n; give a number from 1 to 2"),
            std::string::npos)
      << more.err;
  const Result none = run({kTool, "run", "-n", "2", "--min-workers", "1", "--", "true"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(
      none.err.find("--min-workers 1 is about restarts, and there are none; add --max-restarts"),
      std::string::npos)
      << none.err;
  EXPECT_NE(run({kTool, "run", "--max-restart", "2", "--", "true"}).err.find("--max-restarts"),
            std::string::npos);
}

// ---- The example GPT, on the folder of its checkpoints

std::string little_text() {
  std::string text;
  for (int i = 0; i < 300; i++) {
    text += "number " + std::to_string(i * 37 % 101) + " of the quick brown foxes\n";
  }
  return text;
}

// Rank 1 is lost behind step 40, whose last checkpoint is of step 35; the next attempt makes 60.
TEST_F(Restart, OfATrainingEndsWithTheWeightsOfOneThatWasNotStopped) {
  const std::string config = folder_.write("config.json", R"({"gradient_accumulation_steps": 2,
      "gradient_clipping": 1.0, "zero_optimization": {"stage": 3},
      "bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
      "outrigger": {"states": {"master": {"rounding": "stochastic"}}}})");
  const std::string gpt =
      std::string(OTR_GPT) + " --text " + folder_.write("text.txt", little_text()) + " --config " +
      config +
      " --layers 1 --width 16 --heads 2 --context 8 --batch 2 --warmup 5 --final-lr 1 "
      "--sample 5 --evaluate-batches 1 --evaluate-every 10 --checkpoint-every 7 ";
  const auto files = [&](const std::string& name) {
    return "--csv " + folder_.file(name + ".csv") + " --save " + folder_.file(name + ".weights") +
           " --checkpoints " + folder_.file(name);
  };
  const auto before = outrigger::test::named_shared_memory();
  const Result whole = run(shell({"-n", "2"}, "exec " + gpt + "--steps 60 " + files("whole")));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::string once = gpt + files("stopped");
  const Result stopped =
      run(shell({"-n", "2", "--max-restarts", "1", "--restart-pause", "0"},
                "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec " + once + " --steps 60; " + once +
                    " --steps 40; [ $RANK = 1 ] && kill -9 $$; exit 0"));
  ASSERT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_EQ(count(stopped.out, "gpt goes on from step 35\n"), 1) << stopped.out;
  EXPECT_EQ(count(stopped.out, "goes on"), 1) << stopped.out;
  const std::string weights = read_text(folder_.file("whole.weights"));
  EXPECT_GT(weights.size(), 1000U);
  EXPECT_EQ(weights, read_text(folder_.file("stopped.weights")));
  // The curve, too: without what the stopped attempt told behind its last checkpoint.
  const auto rows = [&](const std::string& name) {
    std::istringstream text(read_text(folder_.file(name + ".csv")));
    std::vector<std::string> all;
    for (std::string row; std::getline(text, row);) all.push_back(row.substr(0, row.rfind(',')));
    return all;
  };
  EXPECT_EQ(rows("whole").size(), 61U);
  EXPECT_EQ(rows("whole"), rows("stopped"));
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("stopped"))) {
    names.insert(entry.path().filename());
  }
  EXPECT_EQ(names, (std::set<std::string>{".lock", "latest", "step49", "step56"}));
  EXPECT_EQ(outrigger::test::named_shared_memory(), before);
}

TEST_F(Restart, OfTheExampleGptNamesWhatIsWrong) {
  const std::string text = folder_.write("text.txt", little_text());
  EXPECT_NE(run({OTR_GPT, "--text", text, "--checkpoint-every", "0"})
                .err.find("--checkpoint-every: 0; 1 to "),
            std::string::npos);
  const Result folder = run({OTR_GPT, "--text", text, "--steps", "1", "--checkpoint-every", "1",
                             "--checkpoints", text + "/below"});
  EXPECT_EQ(folder.code, 1);
  EXPECT_NE(folder.err.find(text + "/below"), std::string::npos) << folder.err;
}

}  // namespace
}  // namespace outrigger::testing

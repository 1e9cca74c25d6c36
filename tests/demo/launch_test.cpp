// SPDX-License-Identifier: Apache-2.0
// The command `outrigger`: what workers get, how their ends are reported, what the exit code is.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process.h"
#include "tool.h"

namespace outrigger::testing {
namespace {

TEST(Launch, GivesEachWorkerItsPlace) {
  const Result result =
      run(shell({"-n", "3"},
                "echo r=$RANK w=$WORLD_SIZE l=$LOCAL_RANK lw=$LOCAL_WORLD_SIZE a=$MASTER_ADDR "
                "p=${MASTER_PORT:+set} o=${OPENBLAS_NUM_THREADS:+set} b=$OTR_CORES_BOUND"),
          {{"RANK", "9"}, {"WORLD_SIZE", "9"}});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "r=0 w=3 l=0 lw=3 a=127.0.0.1 p=set o=set b=1\n");
  for (const std::string rank : {"1", "2"}) {
    EXPECT_EQ(count(result.err, "[rank " + rank + "] r=" + rank + " w=3 l=" + rank +
                                    " lw=3 a=127.0.0.1 p=set o=set b=1\n"),
              1)
        << result.err;
  }
}

TEST(Launch, KeepsThreadNumbersThatTheUserSet) {
  const Result result = run(shell({}, "echo $OMP_NUM_THREADS"), {{"OMP_NUM_THREADS", "7"}});
  EXPECT_EQ(result.out, "7\n");
}

TEST(Launch, BindsWorkersToTheirShare) {
  const Result result = run(shell({"-n", "2", "-v"}, "grep Cpus_allowed_list /proc/self/status"));
  EXPECT_EQ(result.code, 0);
  const std::string mine = result.out;
  const size_t other = result.err.find("[rank 1] ");
  ASSERT_NE(other, std::string::npos);
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    EXPECT_NE("[rank 1] " + mine, result.err.substr(other));
  }
  EXPECT_EQ(count(result.err, " on cores "), 2) << result.err;
}

TEST(Launch, PassesArgumentsUnchangedWithAndWithoutSeparator) {
  EXPECT_EQ(run({kTool, "run", "--", "printf", "%s|", "-n", "a b", "--", "--help"}).out,
            "-n|a b|--|--help|");
  EXPECT_EQ(run({kTool, "run", "-n", "1", "printf", "%s|", "-n", "5"}).out, "-n|5|");
}

TEST(Launch, ReturnsTheFirstFailureAndReportsEveryFate) {
  const Result result =
      run(shell({"-n", "3", "--grace", "0.3"},
                "[ $RANK = 1 ] && exit 7; [ $RANK = 2 ] && exit 0; exec sleep 30"));
  EXPECT_EQ(result.code, 7);
  EXPECT_LT(result.seconds, 10);
  EXPECT_EQ(count(result.err, "rank 1 (process "), 2) << result.err;  // at once, and in the end
  EXPECT_EQ(count(result.err, "ended with exit code 7"), 2) << result.err;
  EXPECT_EQ(count(result.err, "the first to fail"), 1) << result.err;
  EXPECT_EQ(count(result.err, "rank 0 (process "), 1) << result.err;
  EXPECT_EQ(count(result.err, "was killed by signal 15"), 1) << result.err;
  EXPECT_EQ(count(result.err, "ended with exit code 0"), 1) << result.err;
}

TEST(Launch, LosesMessagesThatCannotBeWrittenButNotTheJob) {
  const std::string job = std::string(kTool) +
                          " run -v -n 2 -- sh -c 'echo a line from $RANK >&2; sleep 0.2; "
                          "[ $RANK = 1 ] || echo done'";
  for (const char* const unwritable : {" 2>/dev/full", " 2>&-"}) {
    const Result result = run({"sh", "-c", job + unwritable});
    EXPECT_EQ(result.code, 0) << unwritable;
    EXPECT_EQ(result.out, "done\n") << unwritable;
  }
}

TEST(Launch, LetsTheOthersEndByThemselvesWithinTheGrace) {
  const Result result =
      run(shell({"-n", "2", "--grace", "20"},
                "[ $RANK = 1 ] && kill -9 $$; sleep 0.5; echo rank 1 is gone; exit 3"));
  EXPECT_EQ(result.code, 128 + 9);
  EXPECT_LT(result.seconds, 10);
  EXPECT_EQ(result.out, "rank 1 is gone\n");
  EXPECT_EQ(count(result.err, "ended with exit code 3"), 1) << result.err;
}

TEST(Launch, KillsAWorkerThatIgnoresTheRequestToEnd) {
  const Result result =
      run(shell({"-n", "2", "--grace", "0"},
                "trap '' TERM; [ $RANK = 1 ] && sleep 1 && exit 4; i=0; while [ $i -lt 300 "
                "]; do sleep 0.1; i=$((i+1)); done"));
  EXPECT_EQ(result.code, 4);
  EXPECT_LT(result.seconds, 15);
  EXPECT_EQ(count(result.err, "was killed by signal 9"), 1) << result.err;
}

// The trainer behind a wrapper script: its shell ends or is ended, the trainer must follow.
TEST(Launch, EndsWhatTheWorkersOfAFailedRunLeftBehind) {
  const Result result =
      run(shell({"-n", "2", "--grace", "0.2"},
                "sleep 4711 & echo child $!; [ $RANK = 1 ] && kill -9 $$; wait; true"));
  EXPECT_EQ(result.code, 128 + 9);
  EXPECT_LT(result.seconds, 10);
  int seen = 0;
  const std::string all = result.out + result.err;
  for (size_t at = 0; (at = all.find("child ", at)) != std::string::npos; ++at, ++seen) {
    const int pid = std::stoi(all.substr(at + 6));
    EXPECT_NE(kill(pid, 0), 0) << "process " << pid << " is still there";
  }
  EXPECT_EQ(seen, 2) << all;
}

TEST(Launch, LeavesTheBackgroundOfAGoodRunAlone) {
  const Result result = run(shell({}, "sleep 20 >/dev/null 2>&1 & echo $!"));
  EXPECT_EQ(result.code, 0);
  const int pid = std::stoi(result.out);
  EXPECT_EQ(kill(pid, SIGKILL), 0) << "process " << pid << " was ended";
}

TEST(Launch, NamesAnUnknownCommand) {
  const Result result = run({kTool, "frob", "-n", "2"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("\"frob\""), std::string::npos) << result.err;
}

TEST(Launch, SumsUpAsJson) {
  const Result result =
      run(shell({"-n", "2", "--json", "--grace", "0.3"}, "[ $RANK = 1 ] && exit 7; exec sleep 30"));
  EXPECT_EQ(result.code, 7);
  const std::string last = result.err.substr(result.err.rfind("\n{") + 1);
  const nlohmann::json summary = nlohmann::json::parse(last);
  EXPECT_EQ(summary["exit_code"], 7);
  ASSERT_EQ(summary["workers"].size(), 2U);
  EXPECT_EQ(summary["workers"][1]["rank"], 1);
  EXPECT_EQ(summary["workers"][1]["exit_code"], 7);
  EXPECT_EQ(summary["workers"][1]["first_to_fail"], true);
  EXPECT_EQ(summary["workers"][0]["exit_code"], 128 + 15);
  EXPECT_GT(summary["workers"][0]["seconds"], 0);
  const Result good = run({kTool, "run", "--json", "--", "echo", "--json"});
  EXPECT_EQ(good.out, "--json\n") << "the program's own";
  EXPECT_EQ(nlohmann::json::parse(good.err)["exit_code"], 0) << good.err;
}

TEST(Launch, ForwardsSignalsAndEndsAll) {
  Process process(shell({"-n", "2", "-v"}, "exec sleep 30"));
  ASSERT_TRUE(process.wait_for_error_text("rank 1 is process", 10));
  kill(process.pid(), SIGINT);
  const Result result = process.finish();
  EXPECT_EQ(result.code, 128 + SIGINT);
  EXPECT_LT(result.seconds, 10);
  EXPECT_EQ(count(result.err, "was killed by signal 2"), 2) << result.err;
}

TEST(Launch, LeavesNoWorkerWhenItIsKilledItself) {
  Process process(shell({"-n", "2", "-v"}, "exec sleep 30"));
  ASSERT_TRUE(process.wait_for_error_text("rank 1 is process", 10));
  kill(process.pid(), SIGKILL);
  const Result result = process.finish();
  for (int rank = 0; rank < 2; rank++) {
    const pid_t worker = pid_of_rank(result.err, rank);
    ASSERT_GT(worker, 0);
    for (int i = 0; i < 100 && !has_ended(worker); i++) usleep(20000);
    EXPECT_TRUE(has_ended(worker));
  }
}

TEST(Launch, NamesWhatIsWrongWithItsCall) {
  const Result missing = run({kTool, "run", "-n", "2", "--", "no-such-program"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(count(missing.err, "cannot start 'no-such-program'"), 1) << missing.err;
  const Result cores = run({kTool, "run", "--cores", "0-x", "--", "true"});
  EXPECT_EQ(cores.code, 2);
  EXPECT_EQ(count(cores.err, "'x' is not a core number"), 1) << cores.err;
  EXPECT_EQ(run({kTool, "run", "-n", "0", "--", "true"}).code, 2);
  for (const auto& [word, value] : {std::pair{"-np", "p"}, {"-nx", "x"}, {"-n5000", "5000"}}) {
    const Result workers = run({kTool, "run", word, "2", "--", "true"});
    EXPECT_EQ(workers.code, 2);
    EXPECT_EQ(workers.err, std::string("outrigger run: -n ") + value +
                               " is not a number from 1 to 4096; write outrigger run -n 2 -- "
                               "PROGRAM\n");
  }
  const Result misspelt = run({kTool, "run", "--wokers", "2", "--", "true"});
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_EQ(count(misspelt.err, "unknown option --wokers; the nearest is --workers; write"), 1);
  EXPECT_EQ(run({kTool, "run", "-n", "2"}).code, 2);
  EXPECT_EQ(run({kTool, "run", "--unknown", "--", "true"}).code, 2);
  EXPECT_EQ(run({kTool}).code, 2);
}

}  // namespace
}  // namespace outrigger::testing

// SPDX-License-Identifier: Apache-2.0
// The command `outrigger`: what workers get, how their ends are reported, what the exit code is.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "process.h"

namespace outrigger::testing {
namespace {

const std::string kTool = OTR_TOOL;

// outrigger run <options> -- sh -c <script>
std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  std::vector<std::string> command{kTool, "run"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", "sh", "-c", script});
  return command;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) found++;
  return found;
}

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

// ---- outrigger estimate
// ---------------------------------------------------------------------------

std::string file_with(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(Estimate, CountsTheParametersOfKnownModels) {
  // GPT-2 small has 124,439,808 parameters, Llama 2 7B 6,738,415,616, as their model cards say.
  const std::string gpt2 = file_with("gpt2.json", R"({"model_type": "gpt2", "n_embd": 768,
      "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257})");
  const std::string llama = file_with("llama.json", R"({"model_type": "llama", "hidden_size": 4096,
      "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "vocab_size": 32000, "tie_word_embeddings": false})");
  EXPECT_NE(run({kTool, "estimate", gpt2}).out.find(" 124439808 parameters"), std::string::npos);
  EXPECT_NE(run({kTool, "estimate", llama}).out.find(" 6738415616 parameters"), std::string::npos);
}

TEST(Estimate, SaysWhatWouldFit) {
  std::string text = "{";
  for (int i = 0; i < 64; ++i) {
    text += (i == 0 ? "\"w" : ", \"w") + std::to_string(i) + "\": [16384, 1024]";
  }
  const std::string shapes = file_with("shapes.json", text + "}");
  const std::string config = file_with(
      "stage1.json", R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 50000000}})");
  const Result big =
      run({kTool, "estimate", shapes, "--config", config, "--world", "4", "--host-gib", "1000"});
  EXPECT_EQ(big.code, 0) << big.out << big.err;
  EXPECT_NE(big.out.find("it fits"), std::string::npos) << big.out;
  const Result small =
      run({kTool, "estimate", shapes, "--config", config, "--world", "4", "--host-gib", "14"});
  EXPECT_EQ(small.code, 1);
  EXPECT_NE(small.out.find("does not fit"), std::string::npos) << small.out;
  EXPECT_NE(small.out.find("bf16 with bf16 master and states"), std::string::npos) << small.out;
  const Result json = run({kTool, "estimate", shapes, "--config", config, "--world", "4", "--json",
                           "--host-gib", "14"});
  EXPECT_NE(json.out.find("\"fits\": false"), std::string::npos) << json.out;
  EXPECT_NE(json.out.find("\"parameters\": 1073741824"), std::string::npos) << json.out;
}

TEST(Estimate, ReadsASafetensorsHeader) {
  const std::string header =
      R"({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  const std::string good = file_with("model.safetensors", length + header);
  EXPECT_NE(run({kTool, "estimate", good}).out.find("1 tensors, 15 parameters"), std::string::npos);
  const std::string cut = file_with("cut.safetensors", length + "{}");
  const Result result = run({kTool, "estimate", cut});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("cut.safetensors"), std::string::npos) << result.err;
  const Result unknown = run({kTool, "estimate", file_with("t5.json", R"({"model_type": "t5"})")});
  EXPECT_NE(unknown.err.find("\"t5\""), std::string::npos) << unknown.err;
}

TEST(Launch, NamesAnUnknownCommand) {
  const Result result = run({kTool, "frob", "-n", "2"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("\"frob\""), std::string::npos) << result.err;
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
  EXPECT_EQ(cores.code, 1);
  EXPECT_EQ(count(cores.err, "'x' is not a core number"), 1) << cores.err;
  EXPECT_EQ(run({kTool, "run", "-n", "0", "--", "true"}).code, 2);
  EXPECT_EQ(run({kTool, "run", "-n", "2"}).code, 2);
  EXPECT_EQ(run({kTool, "run", "--unknown", "--", "true"}).code, 2);
  EXPECT_EQ(run({kTool}).code, 2);
}

TEST(Config, PrintsWhatIsInEffectOrWhyNot) {
  const TemporaryFolder folder;
  const std::string good = folder.write("good.json", R"({"zero_optimization": {"stage": 3}})");
  const Result printed = run({kTool, "config", good, "--world", "2"});
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_EQ(count(printed.out, "zero_optimization"), 1) << printed.out;
  const std::string bad = folder.write("bad.json", R"({"zero_optimisation": {"stage": 3}})");
  const Result refused = run({kTool, "config", bad});
  EXPECT_EQ(refused.code, 1);
  EXPECT_GE(count(refused.err, "OTR_E_CONFIG"), 1) << refused.err;
  EXPECT_GE(count(refused.err, "zero_optimization"), 1) << "the nearest known key: " << refused.err;
  EXPECT_EQ(run({kTool, "config", folder.file("absent.json")}).code, 1);
}

TEST(Version, IsThatOfTheLibrary) {
  const Result result = run({kTool, "--version"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.rfind("outrigger " OTR_EXPECTED_VERSION " (ABI ", 0), 0U) << result.out;
}

}  // namespace
}  // namespace outrigger::testing

// SPDX-License-Identifier: Apache-2.0
// The example programs, run as a user would: alone and sharded over worker processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../core/shared_memory.h"
#include "process.h"

namespace outrigger::testing {
namespace {

// A little text with something to learn.
std::string lines() {
  std::string text;
  for (int i = 0; i < 400; i++) {
    text += "the quick brown fox number " + std::to_string(i * 37 % 101) +
            " jumps over the lazy dog.\n";
  }
  return text;
}

std::string config(int stage, const std::string& precision) {
  return R"({"gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.99]}},
             "zero_optimization": {"stage": )" +
         std::to_string(stage) + "}" + precision + "}";
}

const std::string kFloat32;
const std::string kBf16 = R"(, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                                "bf16_optimizer_states": true},
                             "outrigger": {"states": {"master": {"rounding": "stochastic"},
                                "exp_avg": {"rounding": "stochastic"}, "exp_avg_sq": {"rounding": "stochastic"}}})";

class Train : public ::testing::Test {
 protected:
  // The global batch is 8 sequences, however many workers share it.
  std::vector<std::string> command(int workers, const std::string& config_json, int steps,
                                   const std::string& csv) {
    const std::string config_path = folder_.write("config.json", config_json);
    return {OTR_TOOL,
            "run",
            "-v",
            "-n",
            std::to_string(workers),
            "--",
            OTR_GPT,
            "--text",
            text_,
            "--config",
            config_path,
            "--csv",
            folder_.file(csv),
            "--summary",
            folder_.file("summary.json"),
            "--layers",
            "1",
            "--width",
            "32",
            "--heads",
            "2",
            "--context",
            "16",
            "--batch",
            std::to_string(8 / workers),
            "--steps",
            std::to_string(steps),
            "--warmup",
            "5",
            "--lr",
            "0.01",
            "--sample",
            "20",
            "--evaluate-batches",
            "2",
            "--evaluate-every",
            "0"};
  }

  // The loss column.
  std::vector<double> train(int workers, const std::string& config_json, int steps) {
    const Result result = run(command(workers, config_json, steps, "run.csv"));
    EXPECT_EQ(result.code, 0) << result.err;
    std::istringstream rows(read_text(folder_.file("run.csv")));
    std::vector<double> losses;
    std::string row, cell;
    std::getline(rows, row);  // headings
    while (std::getline(rows, row)) {
      std::istringstream cells(row);
      for (int i = 0; i < 3; i++) std::getline(cells, cell, ',');
      losses.push_back(std::stod(cell));
    }
    EXPECT_EQ(losses.size(), static_cast<size_t>(steps));
    return losses;
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.write("text.txt", lines());
};

TEST_F(Train, ReducesTheLoss) {
  for (const auto& [stage, precision] : {std::pair{0, kFloat32}, {3, kBf16}}) {
    const std::vector<double> losses = train(2, config(stage, precision), 150);
    EXPECT_GT(losses.front(), 3.0);
    EXPECT_LT(losses.back(), 1.0);
    EXPECT_NE(read_text(folder_.file("summary.json")).find("\"sample\": \""), std::string::npos);
  }
}

TEST_F(Train, IsTheSameRunTwice) {
  const std::string json = config(3, kBf16);
  EXPECT_EQ(train(2, json, 20), train(2, json, 20));
}

TEST_F(Train, IsTheSameAtEveryStage) {
  const std::vector<double> stage_0 = train(2, config(0, kFloat32), 20);
  for (int stage = 1; stage <= 3; stage++) {
    EXPECT_EQ(stage_0, train(2, config(stage, kFloat32), 20)) << stage;
  }
}

// The same global batch on one worker and on two: sums are rounded in another order, nothing else
// differs.
TEST_F(Train, HasNearlyTheSameCurveOnOneAndTwoWorkers) {
  const std::vector<double> one = train(1, config(3, kFloat32), 20);
  const std::vector<double> two = train(2, config(3, kFloat32), 20);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); i++) EXPECT_NEAR(one[i], two[i], 2e-3) << "step " << i;
  EXPECT_LT(one.back(), one.front() - 0.3) << "a curve that does not move would compare equal too";
}

TEST_F(Train, AccumulatesPassesIntoOneUpdate) {
  const std::string accumulate = R"(, "gradient_accumulation_steps": 3)";
  train(2, config(3, accumulate), 10);
  const std::string csv = read_text(folder_.file("run.csv"));
  EXPECT_NE(csv.find("\n10,3840,"), std::string::npos)
      << csv;  // 10 updates · 3 passes · 8 · 16 characters
}

TEST_F(Train, EndsWithinSecondsAndNamesTheRankThatWasKilled) {
  const auto before = outrigger::test::named_shared_memory();
  for (int victim = 0; victim < 2; victim++) {
    const std::string csv = "killed-" + std::to_string(victim) + ".csv";
    Process process(command(2, config(3, kBf16), 1000000, csv));
    ASSERT_TRUE(process.wait_for_error_text("rank 1 is process", 20));
    std::string told;
    for (int i = 0; i < 500 && std::count(told.begin(), told.end(), '\n') < 5; i++) {
      usleep(20000);  // until some steps are done; the file is written in blocks
      told = read_text(folder_.file(csv));
    }
    ASSERT_GT(told.size(), 200U) << "the run did not begin";
    ASSERT_EQ(kill(pid_of_rank(process.error_text(), victim), SIGKILL), 0);
    const auto killed = std::chrono::steady_clock::now();
    const Result result = process.finish(30);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count();
    EXPECT_LT(seconds, 5);
    EXPECT_EQ(result.code, 128 + SIGKILL) << result.err;
    const std::string number = std::to_string(victim), survivor = std::to_string(1 - victim);
    // The survivor's own words: which call failed, and who is to blame.
    const size_t begin = result.err.find("rank " + survivor + ": otr_");
    ASSERT_NE(begin, std::string::npos) << result.err;
    const std::string message = result.err.substr(begin, result.err.find('\n', begin) - begin);
    EXPECT_NE(message.find("OTR_E_PEER_DEAD: "), std::string::npos) << message;
    EXPECT_NE(message.find("rank " + number + " "), std::string::npos) << message;
    EXPECT_NE(result.err.find("rank " + number + " (process"), std::string::npos) << result.err;
  }
  EXPECT_EQ(outrigger::test::named_shared_memory(), before);
}

TEST_F(Train, NamesWhatIsWrongWithItsCall) {
  EXPECT_NE(run({OTR_GPT, "--text"}).err.find("--text needs a value"), std::string::npos);
  EXPECT_NE(run({OTR_GPT, "--text", text_, "--width", "x"}).err.find("'x' is not a number"),
            std::string::npos);
  const Result heads = run({OTR_GPT, "--text", text_, "--heads", "3"});
  EXPECT_EQ(heads.code, 1);
  EXPECT_NE(heads.err.find("width 128 is not a multiple of 3 heads"), std::string::npos)
      << heads.err;
  EXPECT_NE(run({OTR_GPT, "--text", folder_.file("absent")}).err.find("cannot open"),
            std::string::npos);
}

TEST(Quickstart, LearnsAloneAndOnTwoWorkers) {
  EXPECT_EQ(run({OTR_QUICKSTART}).out, "W = 3.000 -2.000\n");
  EXPECT_EQ(run({OTR_TOOL, "run", "-n", "2", "--", OTR_QUICKSTART}).out, "W = 3.000 -2.000\n");
}

TEST(Chain, LearnsThroughTwoEnginesAloneAndOnTwoWorkers) {
  const std::string expected = "root mean square error 0.000, loss scales 128 and 4096\n";
  EXPECT_EQ(run({OTR_CHAIN}).out, expected);
  EXPECT_EQ(run({OTR_TOOL, "run", "-n", "2", "--", OTR_CHAIN}).out, expected);
}

TEST(Device, LearnsThereAndOffloaded) {
  // W and its gradient, master and moments, each padded to a leaf of 256 floats, a sum of squares
  // and what is decided; on the host two pages for a copy of that.
  const Result there = run({OTR_DEVICE});
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_NE(there.out.find("host memory: 8192 bytes\ndevice memory: 4608 bytes"), std::string::npos)
      << there.out;
  // W, and the bucket in which its gradient is packed.
  const Result offloaded = run({OTR_DEVICE, "--offload"});
  EXPECT_EQ(offloaded.code, 0) << offloaded.err;
  EXPECT_NE(offloaded.out.find("device memory: 2048 bytes"), std::string::npos) << offloaded.out;
  const auto loss_of = [](const Result& result) {
    const size_t begin = result.out.find("loss ");
    return begin == std::string::npos
               ? "none of " + result.out
               : result.out.substr(begin, result.out.find('\n', begin) - begin);
  };
  EXPECT_EQ(loss_of(there).substr(0, 7), "loss 0.");
  EXPECT_EQ(loss_of(there), loss_of(offloaded));  // to the last digit that is shown
}

TEST(Overlap, LearnsBesideItsLoadingAloneAndOnTwoWorkers) {
  const std::string expected = "300 batches loaded beside 300 steps\nW = 3.000 -2.000\n";
  EXPECT_EQ(run({OTR_OVERLAP}).out, expected);
  EXPECT_EQ(run({OTR_TOOL, "run", "-n", "2", "--", OTR_OVERLAP}).out, expected);
}

TEST(Watched, HasRecordsAloneAndOnTwoWorkers) {
  const std::string expected = "50 steps, 0 skipped; the last record has the loss\n";
  EXPECT_EQ(run({OTR_WATCHED}).out, expected);
  const TemporaryFolder folder;
  EXPECT_EQ(run({OTR_TOOL, "run", "-n", "2", "--", OTR_WATCHED, folder.file("r")}).out, expected);
  for (const char* name : {"r/rank-0.jsonl", "r/rank-1.jsonl"}) {
    const std::string text = read_text(folder.file(name));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 52) << "start, steps, end";
  }
}

// The whole model in one place, in double: SGD with two learning rates, one norm, one coefficient.
std::vector<double> errors_of_one_model(int steps) {
  constexpr int kSamples = 12;
  double e[2][2] = {{0.5, 0.1}, {-0.2, 0.4}}, d[2] = {0.3, -0.6};
  std::vector<double> errors;
  for (int step = 0; step < steps; step++) {
    double de[2][2] = {}, dd[2] = {}, squares = 0, norm = 0;
    for (int s = 0; s < kSamples; s++) {
      const double x[2] = {static_cast<double>(s * 3 % 7 - 3),
                           static_cast<double>((s * 5 + 1) % 7 - 3)};
      const double h[2] = {e[0][0] * x[0] + e[0][1] * x[1], e[1][0] * x[0] + e[1][1] * x[1]};
      const double error = d[0] * h[0] + d[1] * h[1] - (3 * x[0] - 2 * x[1]);
      squares += error * error;
      for (int i = 0; i < 2; i++) {
        dd[i] += error / kSamples * h[i];
        for (int j = 0; j < 2; j++) de[i][j] += error / kSamples * d[i] * x[j];
      }
    }
    for (int i = 0; i < 2; i++) norm += dd[i] * dd[i] + de[i][0] * de[i][0] + de[i][1] * de[i][1];
    const double clip = std::min(1.0, 14 / std::sqrt(norm));  // not in the first steps
    for (int i = 0; i < 2; i++) {
      d[i] -= 0.005 * clip * dd[i];
      for (int j = 0; j < 2; j++) e[i][j] -= 0.01 * clip * de[i][j];
    }
    errors.push_back(std::sqrt(squares / kSamples));
  }
  return errors;
}

TEST(Messages, TwoGroupsOfAnyWidthsTrainTheModelOfOne) {
  const std::vector<double> expected = errors_of_one_model(12);
  for (const auto& [ranks, vision_ranks] : {std::pair{2, 1}, {4, 3}, {4, 1}, {5, 3}}) {
    const Result result = run({OTR_TOOL, "run", "-n", std::to_string(ranks), "--", OTR_MESSAGES,
                               std::to_string(vision_ranks)});
    ASSERT_EQ(result.code, 0) << result.err;
    std::istringstream lines(result.out);
    std::string line;
    std::vector<double> errors;
    while (std::getline(lines, line)) errors.push_back(std::stod(line.substr(line.rfind(' '))));
    ASSERT_EQ(errors.size(), expected.size()) << result.out;
    for (size_t i = 0; i < errors.size(); i++) EXPECT_NEAR(errors[i], expected[i], 1.5e-4);
  }
  const Result wrong = run({OTR_TOOL, "run", "-n", "2", "--", OTR_MESSAGES, "2"});
  EXPECT_NE(wrong.code, 0);
  EXPECT_NE(wrong.err.find("2 vision ranks of 2"), std::string::npos) << wrong.err;
}

TEST(HostUpdate, ReachesItsTargetAloneAndOnTwoWorkers) {
  for (const Result& result :
       {run({OTR_HOST_UPDATE}), run({OTR_TOOL, "run", "-n", "2", "--", OTR_HOST_UPDATE})}) {
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("mean distance 0.00"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("after 200 steps"), std::string::npos) << result.out;
  }
}

TEST(OptimizerOnly, ReachesItsTargetWithFourBytesOfStatesPerWeight) {
  const Result result = run({OTR_OPTIMIZER_ONLY});
  EXPECT_EQ(result.code, 0) << result.err;
  double distance = 1, bytes = 0;
  long long steps = 0;
  ASSERT_EQ(std::sscanf(result.out.c_str(), "mean distance %lf after %lld steps; %lf bytes",
                        &distance, &steps, &bytes),
            3)
      << result.out;
  EXPECT_LT(distance, 0.01);
  EXPECT_EQ(steps, 400);
  EXPECT_NEAR(bytes, 4.0, 0.2);
}

TEST(Resume, GoesOnWithTheSameBitsAndSixBytesAWeight) {
  const Result result = run({OTR_RESUME});
  EXPECT_EQ(result.code, 0) << result.err;
  double bytes = 0, distance = 1;
  long long step = 0;
  char verdict[32] = "";
  ASSERT_EQ(std::sscanf(result.out.c_str(),
                        "%lf bytes a weight, mean distance %lf; stopped at step %lld and resumed: "
                        "%31[^\n]",
                        &bytes, &distance, &step, verdict),
            4)
      << result.out;
  EXPECT_NEAR(bytes, 4 + 2 * 260.0 / 256, 0.1);
  EXPECT_LT(distance, 0.05);
  EXPECT_EQ(step, 100);
  EXPECT_STREQ(verdict, "the same bits");
}

}  // namespace
}  // namespace outrigger::testing

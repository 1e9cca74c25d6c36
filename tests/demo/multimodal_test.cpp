// SPDX-License-Identifier: Apache-2.0
// The example of two groups of processes, from outside: beside the same training with both models
// in one process, stopped and resumed, with ranks lost, and called wrongly. PyTorch's numbers are
// beside it in tests/bindings/torch/test_multimodal_c.py, finite differences in
// multimodal_gradient_test.cpp.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "../core/shared_memory.h"
#include "outrigger.h"
#include "process.h"

namespace outrigger::testing {
namespace {

using Command = std::vector<std::string>;
using Values = std::map<std::string, std::vector<float>>;  // by parameter

// SGD at a constant rate: what it moves is as large as the gradient, so a wrong factor shows.
const Command kExact = {"--optimizer",
                        "SGD",
                        "--lr",
                        "0.5",
                        "--clip",
                        "0.5",
                        "--vision-precision",
                        "fp32",
                        "--language-precision",
                        "fp32",
                        "--strips",
                        "7",
                        "--length",
                        "2",
                        "--micro-batches",
                        "3",
                        "--grad-scale",
                        "1000",
                        "--report",
                        "1"};
// As it is meant: AdamW and a schedule, bfloat16 and float16.
const Command kMixed = {"--strips",       "6", "--length", "2", "--micro-batches",      "3",
                        "--steps",        "6", "--report", "2", "--language-precision", "fp16",
                        "--vision-stage", "3"};

Command operator+(Command a, const Command& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Command kAlone = {OTR_MULTIMODAL, "--colocated"};

Command groups(int ranks, const Command& launcher = {}) {
  return Command{OTR_TOOL, "run", "-n", std::to_string(ranks)} + launcher +
         Command{"--", OTR_MULTIMODAL};
}

// The weights that --save has written, of both models.
Values weights(const std::string& prefix) {
  Values values;
  for (const std::string& part : {std::string("vision"), std::string("language")}) {
    const std::string text = read_text(prefix + "." + part + ".safetensors");
    std::vector<double> aligned(text.size() / sizeof(double) + 1);
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(aligned.data()));
    otr_message* message = nullptr;
    EXPECT_EQ(otr_message_unpack(aligned.data(), text.size(), 0, &message), OTR_OK)
        << otr_last_error_message();
    otr_message_info info{};
    info.struct_size = sizeof info;
    otr_message_get_info(message, &info);
    for (int64_t i = 0; i < info.tensor_count; i++) {
      const char* name = nullptr;
      otr_tensor tensor{};
      otr_message_tensor_name(message, i, &name);
      otr_message_get_tensor(message, name, &tensor);
      const auto* data = static_cast<const float*>(tensor.data);
      values[part + "." + name] = {data, data + tensor.shape[0] * tensor.shape[1]};
    }
    otr_message_destroy(message);
  }
  return values;
}

double distance(const Values& a, const Values& b, const std::string& part) {
  double squares = 0;
  for (const auto& [name, values] : a) {
    if (name.rfind(part, 0) != 0) continue;
    for (size_t i = 0; i < values.size(); i++) {
      squares += std::pow(static_cast<double>(values[i]) - static_cast<double>(b.at(name)[i]), 2);
    }
  }
  return std::sqrt(squares);
}

class Multimodal : public ::testing::Test {
 protected:
  Result train(const Command& command, const std::string& name) {
    Result result = run(command + Command{"--save", folder_.file(name)});
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  }
  Values trained(const Command& command) {
    train(command, "trained");
    return weights(folder_.file("trained"));
  }

  TemporaryFolder folder_;
};

// Of what one process has moved the weights of a model, what two groups differ. Sums come in
// another order: measured 1e-6. A doubled gradient, a tag without its ranks or its scale, a lost
// micro-batch: 0.1 and more.
constexpr double kBound = 5e-6;

TEST_F(Multimodal, TwoGroupsTrainTheModelsOfOneProcess) {
  const Values before = trained(kAlone + kExact + Command{"--steps", "0"});
  const Values expected = trained(kAlone + kExact + Command{"--steps", "3"});
  for (const auto& [vision, stages] : {std::pair{2, "1"}, {1, "3"}}) {
    const Values ours = trained(groups(3) + kExact +
                                Command{"--steps", "3", "--vision-ranks", std::to_string(vision),
                                        "--language-stage", stages});
    for (const std::string part : {"vision", "language"}) {
      const double moved = distance(expected, before, part);
      EXPECT_GT(moved, 0.1) << "a training that does not move would compare equal too";
      EXPECT_LT(distance(ours, expected, part) / moved, kBound) << vision << " " << part;
    }
  }
}

// With one rank in each group no sum has another order, and a scale that is a power of two rounds
// nothing: bfloat16, float16 and its loss scale give the bits of one process.
TEST_F(Multimodal, AGroupOfOneRankEachHasTheBitsOfOneProcess) {
  const Command precision = {"--vision-precision", "fp16"};
  train(kAlone + kMixed + precision, "alone");
  train(groups(2) + kMixed + precision, "groups");
  for (const std::string part : {".vision.safetensors", ".language.safetensors"}) {
    EXPECT_EQ(read_text(folder_.file("alone") + part), read_text(folder_.file("groups") + part));
  }
}

TEST_F(Multimodal, OverlapAndARestartChangeNoBit) {
  const std::string save = folder_.file("checkpoints");
  const auto before = outrigger::test::named_shared_memory();
  train(groups(4) + kMixed + Command{"--language-ranks", "2"}, "whole");
  train(groups(4) + kMixed + Command{"--language-ranks", "2", "--ahead", "1"}, "turns");
  const Result resumed = train(
      groups(4, {"--max-restarts", "1"}) + kMixed +
          Command{"--language-ranks", "2", "--checkpoints", save, "--every", "2", "--kill", "1:6"},
      "resumed");
  for (const std::string survivor : {"0", "2", "3"}) {  // by itself, and not by its launcher
    EXPECT_NE(resumed.err.find("rank " + survivor + ": otr_"), std::string::npos) << resumed.err;
  }
  EXPECT_NE(resumed.out.find("goes on from step 4\n"), std::string::npos) << resumed.out;
  for (const std::string part : {".vision.safetensors", ".language.safetensors"}) {
    const std::string whole = read_text(folder_.file("whole") + part);
    EXPECT_GT(whole.size(), 10000U);
    EXPECT_EQ(whole, read_text(folder_.file("turns") + part)) << part;
    EXPECT_EQ(whole, read_text(folder_.file("resumed") + part)) << part;
  }
  EXPECT_EQ(outrigger::test::named_shared_memory(), before);
}

TEST_F(Multimodal, BothGroupsAreUpdatedOrNeither) {
  // The gradient of the embedding overflows on its way, and the vision group alone sees it.
  const Command overflow = {"--grad-scale", "1e38", "--language-precision", "fp16", "--steps"};
  const Values before = trained(groups(3) + kExact + overflow + Command{"0"});
  const Result result = train(groups(3) + kExact + overflow + Command{"2"}, "skipped");
  EXPECT_TRUE(weights(folder_.file("skipped")) == before);
  EXPECT_NE(result.out.find("skipped 2\n"), std::string::npos) << result.out;
}

TEST_F(Multimodal, Learns) {
  const Result result = run(groups(3) + Command{"--length", "1", "--strips", "32", "--steps", "150",
                                                "--lr", "0.01", "--report", "15"});
  ASSERT_EQ(result.code, 0) << result.err;
  const size_t reads = result.out.find("it reads ");
  ASSERT_NE(reads, std::string::npos) << result.out;
  EXPECT_GT(std::stod(result.out.substr(reads + 9)), 70) << result.out;
  double first = 0;
  ASSERT_EQ(std::sscanf(result.out.c_str(), "step 15: loss %lf", &first), 1) << result.out;
  const size_t last = result.out.find("step 150: loss ");
  ASSERT_NE(last, std::string::npos) << result.out;
  EXPECT_LT(std::stod(result.out.substr(last + 15)), first / 2) << result.out;
  for (const char* phase : {"vision rank 1, ms: forward ", "waiting ", "transfer ", "step "}) {
    EXPECT_NE(result.out.find(phase), std::string::npos) << result.out;
  }
}

TEST_F(Multimodal, ALostRankEndsAllOthersAndIsNamed) {
  for (int victim = 0; victim < 3; victim++) {
    const std::string number = std::to_string(victim);
    const Result result = run(groups(3) + kMixed + Command{"--kill", number + ":3"});
    EXPECT_EQ(result.code, 128 + SIGKILL) << result.err;
    EXPECT_LT(result.seconds, 10);
    for (int survivor = 0; survivor < 3; survivor++) {
      if (survivor == victim) continue;
      const size_t begin = result.err.find("rank " + std::to_string(survivor) + ": otr_");
      ASSERT_NE(begin, std::string::npos) << result.err;
      const std::string said = result.err.substr(begin, result.err.find('\n', begin) - begin);
      EXPECT_NE(said.find("OTR_E_PEER_DEAD: rank " + number + " "), std::string::npos) << said;
    }
  }
}

// It sleeps while the others wait for its message, or for it in a collective call.
TEST_F(Multimodal, ASilentRankEndsAllOthersAndIsNamed) {
  Process process(groups(3, {"-v"}) + kMixed +
                  Command{"--steps", "1000000", "--timeout", "3", "--checkpoints",
                          folder_.file("checkpoints"), "--every", "5"});
  ASSERT_TRUE(process.wait_for_error_text("rank 2 is process", 20));
  for (int i = 0; i < 1000 && read_text(folder_.file("checkpoints/vision/latest")).empty(); i++) {
    usleep(20000);  // until they train
  }
  const pid_t silent = pid_of_rank(process.error_text(), 2);
  ASSERT_EQ(kill(silent, SIGSTOP), 0);
  EXPECT_TRUE(process.wait_for_error_text("ended with exit code 1", 20)) << process.error_text();
  EXPECT_EQ(kill(silent, SIGKILL), 0);  // else the launcher waits until it does that itself
  const Result result = process.finish(20);
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex("rank 2 (has sent no message for 3 s|last began operation)")))
      << result.err;
}

TEST_F(Multimodal, SaysWhatIsWrongWithItsCall) {
  const auto refused = [](const Command& command, const std::string& text) {
    const Result result = run(command);
    EXPECT_EQ(result.code, 1) << text;
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  };
  const std::string short_file = folder_.write("short", std::string(700, '\1'));
  const std::string wrong_file = folder_.write("wrong", std::string(650, '\20'));
  const auto program = [](const Command& options) { return Command{OTR_MULTIMODAL} + options; };
  refused(program({}), "1 process cannot be two groups");
  refused(program({"--vision-stage", "4"}), "--vision-stage: 4; 0 to 3 is legal");
  refused(program({"--language-precision", "fp8"}), "'fp8'; legal: fp32, bf16 or fp16");
  refused(program({"--steps", "many"}), "--steps: 'many' is not a number");
  refused(program({"--micro-batches", "0"}), "--micro-batches: 0; 1 to");
  refused(program({"--grad-scale", "0"}), "a gradient times 0 is lost");
  refused(program({"--kill", "1"}), "--kill: '1' is not RANK:STEP");
  refused(program({"--ahead"}), "--ahead needs a value");
  refused(program({"--behind", "1"}), "unknown option '--behind'");
  refused(program({"--colocated", "--vision-ranks", "1"}), "do not go with it");
  refused(program({"--digits", folder_.file("absent")}), "cannot open");
  refused(program({"--digits", short_file}), "has 700 bytes");
  refused(program({"--digits", wrong_file}), "byte 0 is 16, and at most 9 is legal");
  refused(groups(2) + Command{"--vision-ranks", "2", "--language-ranks", "2"},
          "2 vision ranks and 2 language ranks are not 2 processes");
  refused(groups(3) + Command{"--strips", "1"}, "each has at least 1");
  refused(kAlone + Command{"--steps", "1", "--length", "1", "--require", "100"}, "are required");
}

}  // namespace
}  // namespace outrigger::testing

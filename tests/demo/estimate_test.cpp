// SPDX-License-Identifier: Apache-2.0
// outrigger estimate: models it reads, machines it is told of, configurations it writes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "estimate_support.h"

namespace outrigger::testing {
namespace {

TEST_F(Estimate, CountsTheParametersOfKnownModels) {
  // GPT-2 small has 124,439,808 parameters, Llama 2 7B 6,738,415,616, as their model cards say.
  const std::string gpt2 = folder_.write("gpt2.json", R"({"model_type": "gpt2", "n_embd": 768,
      "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257})");
  const std::string llama =
      folder_.write("llama.json", R"({"model_type": "llama", "hidden_size": 4096,
      "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "vocab_size": 32000, "tie_word_embeddings": false})");
  EXPECT_EQ(json_of({gpt2})["parameters"], 124439808);
  EXPECT_NE(estimate({llama}).out.find(" 6738415616 parameters"), std::string::npos);
}

TEST_F(Estimate, ReadsASafetensorsHeader) {
  const std::string header =
      R"({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]}})";
  const std::string good = folder_.write("model.safetensors", safetensors(header, 60));
  EXPECT_NE(estimate({good}).out.find("1 tensor, 15 parameters, 1 rank on 1 host"),
            std::string::npos);
  const std::string list = folder_.write("list.json", R"({"w": [1024, 1024], "b": [1024]})");
  EXPECT_NE(estimate({list}).out.find("2 tensors, 1049600 parameters"), std::string::npos);
  EXPECT_NE(estimate({list}).out.find("\nMiB a rank"), std::string::npos) << "not 0.004 GiB";
  expect_fault({folder_.write("array.json", "[1024]")}, {R"({"w": [1024, 1024], "b": [1024]})"});
  expect_fault({folder_.write("t5.json", R"({"model_type": "t5"})")}, {"\"t5\""});
}

TEST_F(Estimate, SaysWhatWouldFit) {
  const std::string config = folder_.write(
      "stage1.json", R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 50000000}})");
  const std::vector<std::string> four{shapes(), "--config", config, "--world", "4", "--host-gib"};
  auto with = [&](const char* gib) {
    std::vector<std::string> words = four;
    words.emplace_back(gib);
    return words;
  };
  const Result big = estimate(with("1000"));
  EXPECT_EQ(big.code, 0) << big.out << big.err;
  EXPECT_NE(big.out.find("it fits"), std::string::npos) << big.out;
  const Result small = estimate(with("14"));
  EXPECT_EQ(small.code, 1);
  EXPECT_NE(small.out.find("does not fit"), std::string::npos) << small.out;
  EXPECT_NE(small.out.find("bf16 with bf16 master and states"), std::string::npos) << small.out;
  const Json json = json_of(with("14"));
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["parameters"], 1073741824);
  EXPECT_EQ(json["host_bytes_available"], int64_t{14} << 30);
  EXPECT_EQ(json["host_bytes_source"], "given");
}

// A change of the stage takes nothing else away.
TEST_F(Estimate, KeepsThePrecisionWhereOnlyTheStageChanges) {
  const std::string config = folder_.write(
      "fp16.json", R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 1}})");
  const Json json = json_of({shapes(), "--config", config, "--world", "4", "--host-gib", "1000"});
  ASSERT_FALSE(json["would_fit"].empty()) << json;
  EXPECT_EQ(json["would_fit"][0]["change"], "stage 2");
  const std::string direct = folder_.write(
      "fp16_2.json", R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 2}})");
  const Json second = json_of({shapes(), "--config", direct, "--world", "4", "--host-gib", "1000"});
  EXPECT_EQ(json["would_fit"][0]["host_bytes"], second["host_bytes_needed"]);
}

TEST_F(Estimate, ChecksTheBatchForAllRanks) {
  const char* text = R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1})";
  const std::string config = folder_.write("batch.json", text);
  EXPECT_EQ(json_of({shapes(), "--config", config, "--world", "8", "--host-gib", "1000"})["fits"],
            true);
  expect_fault({shapes(), "--config", config, "--world", "3", "--host-gib", "1"},
               {"train_batch_size"});
}

TEST_F(Estimate, PlacesRanksOnHosts) {
  const std::string gib = "--host-gib";
  auto place = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {shapes(), gib, "1"});
    const Json json = json_of(words);
    return std::vector<int>{json["world_size"], json["hosts"], json["ranks_per_host"]};
  };
  using Places = std::vector<int>;
  EXPECT_EQ(place({}), (Places{1, 1, 1}));
  EXPECT_EQ(place({"--world", "4"}), (Places{4, 1, 4}));
  EXPECT_EQ(place({"--hosts", "3"}), (Places{3, 3, 1}));
  EXPECT_EQ(place({"--hosts", "3", "--ranks-per-host", "4"}), (Places{12, 3, 4}));
  EXPECT_EQ(place({"--world", "12", "--hosts", "3"}), (Places{12, 3, 4}));
  EXPECT_EQ(place({"--world", "7", "--ranks-per-host", "4"}), (Places{7, 2, 4}));
  expect_fault({shapes(), gib, "1", "--world", "7", "--hosts", "3"}, {"--world 7", "--hosts 3"});
  expect_fault({shapes(), gib, "1", "--world", "7", "--ranks-per-host", "8"},
               {"--ranks-per-host 8", "--world 7"});
  expect_fault({shapes(), gib, "1", "--world", "8", "--hosts", "2", "--ranks-per-host", "3"},
               {"--world 8", "--ranks-per-host 3"});
  expect_fault({shapes(), gib, "1", "--hosts", "0"}, {"--hosts"});
  // Ranks of several hosts share no memory: each has its copy of the published parameters.
  const std::string config = folder_.write("stage1.json", R"({"zero_optimization": {"stage": 1}})");
  const auto rank_bytes = [&](const char* hosts) {
    return json_of({shapes(), gib, "1", "--config", config, "--world", "4", "--hosts",
                    hosts})["rank"]["outrigger"]["published parameters"]["resident_bytes"]
        .get<int64_t>();
  };
  EXPECT_EQ(rank_bytes("2"), 4 * rank_bytes("1"));
}

// 2^30 elements on four ranks: 4 GiB on rank 0, or on each, or 1 GiB on each; half in bfloat16.
TEST_F(Estimate, ShowsTheStartAndCountsTheWayGiven) {
  const std::string config = folder_.write("stage3.json", R"({"bf16": {"enabled": true,
      "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
      "zero_optimization": {"stage": 3, "reduce_bucket_size": 50000000}})");
  const std::vector<std::string> four{shapes(), "--config",   config, "--world",
                                      "4",      "--host-gib", "12"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), four.begin(), four.end());
    return more;
  };
  const Json json = json_of(four);
  const auto host = [](const Json& of, const char* way) {
    return of["start"][way]["host_peak_bytes"].get<int64_t>();
  };
  constexpr int64_t kGib = int64_t{1} << 30;
  // The rest of 2^24 elements, of which each rank holds a quarter until they are taken.
  constexpr int64_t kRest = int64_t{4} * (64 - 16) << 20;
  EXPECT_EQ(host(json, "held") - host(json, "shared-out"), (16 - 4) * kGib - kRest);
  EXPECT_NEAR(static_cast<double>(host(json, "shared-out") - kRest - host(json, "given")), 0,
              1 << 24)
      << "4 GiB in all";
  EXPECT_GT(json["start"]["given"]["rank_peak_bytes"], 4 * kGib);
  EXPECT_EQ(json["start"]["counted"], "shared-out");
  EXPECT_EQ(json["fits"], true) << json["host_bytes_needed"];
  const Json low = json_of(with({"--initial-dtype", "bfloat16"}));
  EXPECT_EQ(host(json, "held") - host(low, "held"), 8 * kGib);
  EXPECT_EQ(host(json, "given"), host(low, "given")) << "a float32 copy whatever it was";
  const Json held = json_of(with({"--start", "held"}));
  EXPECT_EQ(held["fits"], false);
  EXPECT_EQ(held["host_bytes_needed"], host(held, "held"));
  const Result text = estimate(with({"--start", "held"}));
  EXPECT_EQ(text.code, 1);
  EXPECT_NE(text.out.find("counted  does not fit"), std::string::npos) << text.out;
  expect_fault(with({"--start", "late"}), {"--start", "late"});
  expect_fault(with({"--initial-dtype", "int8"}), {"--initial-dtype", "int8"});
}

TEST_F(Estimate, TakesAnotherMachinesMemory) {
  const std::string machine = folder_.write(
      "cluster.json", R"({"well": true, "machine": {"memory": {"usable_bytes": 5368709120}}})");
  const Json json = json_of({shapes(), "--machine", machine});
  EXPECT_EQ(json["host_bytes_available"], int64_t{5} << 30);
  EXPECT_NE(json["host_bytes_source"].get<std::string>().find("cluster.json"), std::string::npos);
  const Result own = run({kTool, "doctor", "--json"});
  EXPECT_GT(
      json_of({shapes(), "--machine", folder_.write("own.json", own.out)})["host_bytes_available"],
      0);
  expect_fault({shapes(), "--machine", machine, "--host-gib", "4"}, {"--machine"});
  expect_fault({shapes(), "--machine", folder_.write("no.json", "[]")}, {"no.json", "doctor"});
  expect_fault({shapes(), "--machine", folder_.file("absent.json")}, {"absent.json"});
  const std::string silent = folder_.write(
      "silent.json",
      R"({"memory": {"usable_bytes": null, "usable_bytes_reason": "hidden from here"}})");
  expect_fault({shapes(), "--machine", silent}, {"hidden from here", "--host-gib"});
}

TEST_F(Estimate, WritesTheFirstConfigurationThatFits) {
  const std::string config = folder_.write(
      "given.json",
      R"({"gradient_clipping": 0.5, "zero_optimization": {"stage": 1, "reduce_bucket_size": 50000000}})");
  const std::string out = folder_.file("out.json");
  const std::vector<std::string> words{shapes(),     "--config", config,           "--world", "4",
                                       "--host-gib", "14.5",     "--write-config", out};
  const Result first = estimate(words);
  EXPECT_EQ(first.code, 0) << first.out << first.err;
  EXPECT_NE(first.out.find("out.json has stage 1, bf16 with bf16 master and states: a host needs"),
            std::string::npos)
      << first.out;
  const Json written = Json::parse(read_text(out));
  EXPECT_EQ(written["gradient_clipping"], 0.5) << "what was given stays";
  EXPECT_EQ(written["zero_optimization"]["reduce_bucket_size"], 50000000);
  EXPECT_EQ(written["bf16"]["bf16_optimizer_states"], true);
  for (const char* state : {"master", "exp_avg_sq"}) {
    EXPECT_EQ(written["outrigger"]["states"][state]["rounding"], "stochastic") << state;
  }
  const Result checked = run({kTool, "config", out, "--world", "4"});
  EXPECT_EQ(checked.code, 0);
  EXPECT_EQ(checked.err, "") << "a configuration that we write needs no warning";
  EXPECT_EQ(json_of({shapes(), "--config", out, "--world", "4", "--host-gib", "14.5"})["fits"],
            true);

  // What exists stays, unless one insists.
  const std::string before = read_text(out);
  expect_fault(words, {"out.json exists", "--force"});
  EXPECT_EQ(read_text(out), before);
  std::vector<std::string> forced = words;
  forced[6] = "1000";
  forced.emplace_back("--force");
  const Json json = json_of(forced);
  EXPECT_TRUE(json["written"]["change"].is_null()) << json;
  EXPECT_EQ(read_text(out), read_text(config) + "\n") << "it fits as it is";
  expect_fault({shapes(), "--force"}, {"--write-config"});
  expect_fault({shapes(), "--host-gib", "1000", "--write-config", folder_.file("no/such/folder")},
               {"no/such/folder", "No such file"});
}

// What the configuration says of rounding stays; a state that the rule does not keep has none.
TEST_F(Estimate, WritesRoundingWhereItIsOpenAndLegal) {
  const std::string config = folder_.write("lion.json", R"({"optimizer": {"type": "Lion"},
      "outrigger": {"states": {"master": {"rounding": "nearest"}}},
      "zero_optimization": {"stage": 1, "reduce_bucket_size": 50000000}})");
  const Json json = json_of({shapes(), "--config", config, "--world", "4", "--host-gib", "12"});
  ASSERT_FALSE(json["would_fit"].empty()) << json;
  for (const Json& change : json["would_fit"]) {
    EXPECT_FALSE(change["patch"].contains("outrigger")) << change;
  }
  const std::string free = folder_.write("free.json", R"({"optimizer": {"type": "Lion"},
      "zero_optimization": {"stage": 1, "reduce_bucket_size": 50000000}})");
  const Json last =
      json_of({shapes(), "--config", free, "--world", "4", "--host-gib", "12"})["would_fit"].back();
  EXPECT_EQ(last["patch"]["outrigger"],
            Json::parse(R"({"states": {"master": {"rounding": "stochastic"}}})"));
}

TEST_F(Estimate, WarnsAsTheLibraryDoes) {
  const std::string config = folder_.write("nearest.json", R"({"zero_optimization": {"stage": 1},
      "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1,
      "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}})");
  const std::vector<std::string> words{shapes(), "--config", config, "--world", "4"};
  const Result text = estimate(words);
  EXPECT_EQ(text.err.rfind("warning: " + config + ": bfloat16 weights with rounding to nearest", 0),
            0U)
      << text.err;
  const Json warnings = json_of(words)["warnings"];
  ASSERT_EQ(warnings.size(), 1U) << warnings;
  EXPECT_EQ(text.err, "warning: " + config + ": " + warnings[0].get<std::string>() + "\n");
  EXPECT_EQ(json_of({shapes()})["warnings"], Json::array());
}

TEST_F(Estimate, WritesNothingWhereNothingFits) {
  const std::string out = folder_.file("out.json");
  const Result result = estimate({shapes(), "--host-gib", "0.1", "--write-config", out});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("use more hosts"), std::string::npos) << result.out;
  EXPECT_EQ(read_text(out), "");
}

TEST_F(Estimate, SaysWhatIsWrongWithItsCall) {
  expect_fault({}, {"model"});
  const std::string absent = folder_.file("absent.json");
  const std::string reason = "cannot open " + absent + ": No such file or directory";
  expect_fault({absent}, {reason});
  expect_fault({shapes(), "--config", absent}, {reason});
  expect_fault({folder_.file("")}, {"cannot open", "Is a directory"});
  expect_fault({"--wrld", "4"}, {"unknown option --wrld; the nearest is --world"});
  expect_fault({shapes(), "--wrld=4", "--frob"}, {"unknown option --wrld; the nearest is --world"});
  expect_fault({shapes(), "--frob"}, {"unknown option --frob; see outrigger estimate --help"});
  expect_fault({shapes(), "twice"}, {"\"twice\" is one argument too many"});
  expect_fault({shapes(), "--config", folder_.write("bad.json", R"({"zero": 1})")}, {"zero"});
  expect_fault({shapes(), "--host-gib", "-3"}, {"--host-gib"});
}

}  // namespace
}  // namespace outrigger::testing

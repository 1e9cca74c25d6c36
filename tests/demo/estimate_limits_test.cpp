// SPDX-License-Identifier: Apache-2.0
// Numbers beyond reason, in options and in files that others write: a line that names them, and
// exit code 2.
#include <string>
#include <vector>

#include "estimate_support.h"

namespace outrigger::testing {
namespace {

TEST_F(Estimate, RefusesMemoryBeyondReason) {
  for (const char* gib :
       {"1e300", "1e308", "inf", "nan", "-nan", "-1", "0", "1e-9", "2000000000"}) {
    expect_fault({shapes(), "--host-gib", gib},
                 {"--host-gib", gib, "GiB", "from 0.001 to 1073741824"});
  }
  EXPECT_EQ(json_of({shapes(), "--host-gib", "1073741824"})["host_bytes_available"],
            int64_t{1} << 60);
  const auto machine = [&](const std::string& bytes) {
    return folder_.write("machine.json", R"({"memory": {"usable_bytes": )" + bytes + "}}");
  };
  for (const char* bytes : {"18446744073709551615", "9223372036854775808", "1152921504606846977"}) {
    expect_fault({shapes(), "--machine", machine(bytes)}, {"machine.json", "usable_bytes", "2^60"});
  }
  for (const char* bytes : {"-1", "1e30", "\"many\""}) {
    expect_fault({shapes(), "--machine", machine(bytes)}, {"machine.json", "--host-gib"});
  }
}

TEST_F(Estimate, RefusesCountsBeyondReason) {
  for (const char* option : {"--world", "--hosts", "--ranks-per-host"}) {
    for (const char* count : {"0", "-1", "1048577", "99999999999999999999", "1e3", "nan", "1.5"}) {
      expect_fault({shapes(), "--host-gib", "1", option, count}, {option, count});
    }
  }
  expect_fault({shapes(), "--host-gib", "1", "--hosts", "1048576", "--ranks-per-host", "1048576"},
               {"1099511627776 ranks", "1048576"});
  // Each rank has it all at stage 0.
  const std::string huge = folder_.write("huge.json", R"({"w": [72057594037927936]})");
  expect_fault({huge, "--host-gib", "1", "--world", "1048576"}, {"1048576 ranks", "--hosts"});
}

TEST_F(Estimate, RefusesAModelBeyondReason) {
  const auto llama = [&](const std::string& key, const std::string& value) {
    Json json = {{"model_type", "llama"},    {"hidden_size", 64},      {"intermediate_size", 128},
                 {"num_attention_heads", 4}, {"num_hidden_layers", 2}, {"vocab_size", 100}};
    json[key] = Json::parse(value);
    return folder_.write("config.json", json.dump());
  };
  EXPECT_EQ(estimate({llama("head_dim", "null"), "--host-gib", "1"}).code, 0);
  for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads",
                          "num_hidden_layers", "vocab_size", "num_key_value_heads", "head_dim"}) {
    for (const char* value :
         {"1099511627776", "18446744073709551615", "-1", "0", "1.5", "1e300", "\"64\"", "[[[]]]"}) {
      expect_fault({llama(key, value)}, {"config.json", std::string("\"") + key + "\" is",
                                         "legal is a number from 1 to"});
    }
  }
  expect_fault({llama("num_hidden_layers", "16385")}, {"16385", "1 to 16384"});
  expect_fault({llama("hidden_size", "2147483648"), "--host-gib", "1"}, {"2147483648"});
  expect_fault({folder_.write("gpt2.json", R"({"model_type": "gpt2", "n_embd": 8, "vocab_size": 8,
      "n_positions": 8, "n_layer": 1099511627776})")},
               {"gpt2.json", "\"n_layer\" is 1099511627776"});
  expect_fault({folder_.write("gpt2.json", R"({"model_type": "gpt2", "n_embd": 8})")},
               {"gpt2.json", "is missing"});
}

TEST_F(Estimate, RefusesShapesBeyondReason) {
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  for (const std::string& shape :
       {std::string("[-1]"), std::string("[1.5]"), std::string("[18446744073709551615]"),
        std::string("[1e300]"), std::string("{}"), std::string("null"), std::string("7"), deep,
        "[" + std::string("1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ") +
            std::string("1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ") +
            std::string("1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ") +
            std::string("1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]")}) {
    SCOPED_TRACE(shape.substr(0, 40));
    expect_fault({folder_.write("shapes.json", R"({"w": )" + shape + "}")},
                 {"shapes.json", "\"w\""});
    const std::string header = R"({"w": {"data_offsets": [0, 4], "shape": )" + shape + "}}";
    expect_fault({folder_.write("w.safetensors", safetensors(header, 4))},
                 {"w.safetensors", "\"w\""});
  }
  expect_fault({folder_.write("shapes.json", R"({"w": [4294967296, 4294967296]})")},
               {"\"w\"", "2^56"});
  expect_fault({folder_.write("shapes.json", R"({"v": [72057594037927936], "w": [1]})")},
               {"\"w\"", "2^56"});
}

TEST_F(Estimate, RefusesASafetensorsFileThatIsNotWhole) {
  const std::string header =
      R"({"b": {"dtype": "F32", "shape": [10], "data_offsets": [60, 100]}, "a": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]}})";
  const std::string expected = std::to_string(8 + header.size() + 100);
  EXPECT_EQ(
      estimate({folder_.write("m.safetensors", safetensors(header, 100)), "--host-gib", "1"}).code,
      0);
  for (const size_t data : {0, 60, 99, 101}) {
    const std::string actual = std::to_string(8 + header.size() + data);
    expect_fault({folder_.write("m.safetensors", safetensors(header, data))},
                 {"m.safetensors", expected + " bytes", "has " + actual, "cut"});
  }
  const std::string whole = safetensors(header, 100);
  for (const size_t bytes : {0, 4, 8, 9, 100}) {
    expect_fault({folder_.write("m.safetensors", whole.substr(0, bytes))}, {"m.safetensors"});
  }
  expect_fault({folder_.write("m.safetensors", whole.substr(0, 100))},
               {"within its header", std::to_string(8 + header.size()), "has 100"});
  for (const char* offsets :
       {"[0]", "[4, 0]", "[-4, 0]", "[0, 18446744073709551615]", "null", "{}"}) {
    expect_fault(
        {folder_.write(
            "m.safetensors",
            safetensors(std::string(R"({"w": {"shape": [1], "data_offsets": )") + offsets + "}}",
                        4))},
        {"m.safetensors", "data_offsets of \"w\""});
  }
  expect_fault({folder_.write("m.safetensors", safetensors(R"({"w": {"shape": [1]}})", 4))},
               {"data_offsets of \"w\""});
}

// The other commands' numbers.
TEST(Numbers, OfEveryCommandAreBounded) {
  const std::vector<std::vector<std::string>> calls{
      {"doctor", "--timeout"}, {"run", "--grace"}, {"run", "-n"}, {"config", "-", "--world"}};
  for (const auto& call : calls) {
    for (const char* number : {"nan", "inf", "-1", "1e300", "99999999999999999999", "x"}) {
      std::vector<std::string> words{kTool};
      words.insert(words.end(), call.begin(), call.end());
      words.emplace_back(number);
      words.insert(words.end(), {"--", "true"});
      const Result result = run(words);
      EXPECT_EQ(result.code, 2) << call[0] << " " << number << result.out << result.err;
      EXPECT_NE(result.err.find(number), std::string::npos) << result.err;
    }
  }
  for (const char* cores : {"99999999999999999999", "0-99999999", "-1", "3-1", "nan"}) {
    const Result result = run({kTool, "run", "--cores", cores, "--", "true"});
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find(cores), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace outrigger::testing

// SPDX-License-Identifier: Apache-2.0
// Random mutations of good texts: the parser answers or throws a proper error, whatever comes.
#include <array>
#include <random>

#include "core/config/document.h"
#include "core/config/keys.h"
#include "tests/config/support.h"

namespace outrigger::config {
namespace {

constexpr std::string_view kSeeds[] = {
    R"({"train_batch_size": 16, "gradient_clipping": 1.0, "zero_optimization": {"stage": 3, "overlap_comm": true}})",
    R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
 "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu", "ratio": 1}}})",
    R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8}}})",
    R"({"outrigger": {"seed": 3, "states": {"exp_avg": {"format": "bfloat16", "rounding": "nearest"}}}})",
    R"({"type": "Adam", "params": {"lr": 5e-1}, "states": {"master": {"format": "float32"}}, "seed": 9})",
    "[[[[{\"a\": [null, true, false, -0.0, 1e308, \"\\u00e9\\ud83d\\ude00\"]}]]]]",
};

constexpr std::string_view kPieces[] = {"{",         "}",
                                        "[",         "]",
                                        ",",         ":",
                                        "\"",        "\\",
                                        "null",      "true",
                                        "-1",        "1e999",
                                        "0.5",       "18446744073709551616",
                                        "\"auto\"",  "\"bfloat16\"",
                                        "\"stage\"", "\n",
                                        "//",        "\xC3",
                                        "\xFF",      "\xE2\x82\xAC",
                                        "\\u0000",   "NaN",
                                        "\t"};

using Random = std::mt19937;

size_t below(Random& random, size_t end) {
  return std::uniform_int_distribution<size_t>(0, end - 1)(random);
}

void mutate(std::string& text, Random& random) {
  const size_t at = below(random, text.size() + 1);
  switch (below(random, 5)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(below(random, 256));
      break;
    case 1:
      text.insert(at, kPieces[below(random, std::size(kPieces))]);
      break;
    case 2:
      text.erase(at, below(random, 8) + 1);
      break;
    case 3:
      text.insert(at, text.substr(below(random, text.size() + 1), below(random, 24)));
      break;
    default: {  // a key from the table, so that mutations get past the names
      const Key& key = keys()[below(random, keys().size())];
      const size_t dot = key.path.rfind('.');
      const std::string_view leaf =
          dot == std::string_view::npos ? key.path : key.path.substr(dot + 1);
      text.insert(at,
                  fmt::format("\"{}\": {}, ", leaf, kPieces[below(random, std::size(kPieces))]));
    }
  }
}

void expect_proper(const Fault& fault, const std::string& text) {
  if (fault.status == OTR_OK) return;
  EXPECT_TRUE(fault.status == OTR_E_CONFIG || fault.status == OTR_E_UNSUPPORTED)
      << fault.text << "\n"
      << text;
  EXPECT_FALSE(fault.text.empty());
  EXPECT_LT(fault.text.size(), 4000U) << text;
  // One line of valid UTF-8: nothing had to be replaced.
  EXPECT_EQ(printable(fault.text, 100000), fault.text) << text;
}

TEST(Fuzz, MutatedTextsGetAnAnswer) {
  Random random(20240531);
  int64_t accepted = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text(kSeeds[below(random, std::size(kSeeds))]);
    for (size_t i = below(random, 6); i > 0; --i) mutate(text, random);
    const Fault fault = engine_fault(text, 1 + static_cast<int32_t>(below(random, 4)));
    accepted += fault.status == OTR_OK ? 1 : 0;
    expect_proper(fault, text);
    expect_proper(optimizer_fault(text), text);
  }
  EXPECT_GT(accepted, 100);  // the loop also reaches what lies behind the checks
}

TEST(Fuzz, AMegabyteOfGarbageIsAnsweredAtOnce) {
  Random random(7);
  for (int round = 0; round < 4; ++round) {
    std::string text(size_t{1} << 20, '\0');
    for (char& c : text) c = static_cast<char>(1 + below(random, 255));
    expect_proper(engine_fault(text), "garbage");
    expect_proper(engine_fault("{\"" + text.substr(0, 1000000)), "garbage in a key");
  }
  std::string pieces = "{";
  while (pieces.size() < (size_t{1} << 20) - 64)
    pieces += kPieces[below(random, std::size(kPieces))];
  expect_proper(engine_fault(pieces), "pieces");
  // Many keys of one object, the worst case of the search for duplicates.
  std::string keys = "{\"0\": 0";
  for (int i = 1; i < 9000; ++i) keys += fmt::format(",\"{}\": 0", i);
  expect_proper(engine_fault(keys + "}"), "keys");
}

}  // namespace
}  // namespace outrigger::config

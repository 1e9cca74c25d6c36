// SPDX-License-Identifier: Apache-2.0
// The fuzzer of messages, in short: messages that are read, and changes from a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/message/properties.h"
#include "tests/fuzz/safetensors/mutate.h"
#include "tests/sanitizers.h"

namespace otr_fuzz_message {
namespace {

TEST(MessageFuzz, SeedsAreRead) {
  ASSERT_EQ(seeds().size(), 3U);
  for (const std::string& bytes : seeds()) {
    const Verdict verdict = check_message(bytes);
    EXPECT_TRUE(verdict.accepted) << bytes;
    EXPECT_EQ(verdict.broken, "") << bytes;
  }
}

TEST(MessageFuzz, MutationsGetAnAnswer) {
  otr_fuzz_safetensors::Random random(20241126);
  int accepted = 0;
  constexpr int kRounds = outrigger::test::rounds(20000);
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = seeds()[otr_fuzz_safetensors::below(random, seeds().size())];
    for (size_t i = otr_fuzz_safetensors::below(random, 4); i > 0; --i) {
      bytes = otr_fuzz_safetensors::mutate(bytes, random);
    }
    const Verdict verdict = check_message(bytes);
    ASSERT_EQ(verdict.broken, "") << bytes;
    accepted += verdict.accepted ? 1 : 0;
  }
  EXPECT_GT(accepted, kRounds / 10);  // the loop also reaches what lies behind the checks
  EXPECT_LT(accepted, kRounds * 9 / 10);
}

}  // namespace
}  // namespace otr_fuzz_message

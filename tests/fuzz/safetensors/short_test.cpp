// SPDX-License-Identifier: Apache-2.0
// The safetensors fuzzer's short form: files that are read, and changes from a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/safetensors/mutate.h"
#include "tests/fuzz/safetensors/properties.h"
#include "tests/sanitizers.h"

namespace otr_fuzz_safetensors {
namespace {

TEST(SafetensorsFuzz, SeedsAreRead) {
  for (const std::string& file : seeds()) {
    const Verdict verdict = check_file(file);
    EXPECT_TRUE(verdict.accepted) << file;
    EXPECT_EQ(verdict.broken, "") << file;
  }
}

TEST(SafetensorsFuzz, MutationsGetAnAnswer) {
  Random random(20240602);
  int accepted = 0;
  constexpr int kRounds = outrigger::test::rounds(20000);
  for (int round = 0; round < kRounds; ++round) {
    std::string file = seeds()[below(random, seeds().size())];
    for (size_t i = below(random, 5); i > 0; --i) file = mutate(file, random);
    const Verdict verdict = check_file(file);
    ASSERT_EQ(verdict.broken, "") << file;
    accepted += verdict.accepted ? 1 : 0;
  }
  EXPECT_GT(accepted, kRounds / 10);  // the loop also reaches what lies behind the checks
  EXPECT_LT(accepted, kRounds * 9 / 10);
}

}  // namespace
}  // namespace otr_fuzz_safetensors

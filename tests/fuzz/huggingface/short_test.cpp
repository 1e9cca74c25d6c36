// SPDX-License-Identifier: Apache-2.0
// The short form of the fuzzer of imports: models that are imported, and changes from a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/huggingface/properties.h"
#include "tests/sanitizers.h"

namespace otr_fuzz_huggingface {
namespace {

TEST(HuggingFaceFuzz, SeedsAreImported) {
  for (const Model& model : seeds()) {
    const Verdict verdict = check(model);
    EXPECT_TRUE(verdict.imported) << model[0];
    EXPECT_EQ(verdict.broken, "") << model[0];
  }
}

TEST(HuggingFaceFuzz, MutationsGetAnAnswer) {
  Random random(20240604);
  int imported = 0;
  constexpr int kRounds = outrigger::test::rounds(6000);
  for (int round = 0; round < kRounds; ++round) {
    Model model = seeds()[below(random, seeds().size())];
    for (size_t i = below(random, 4); i > 0; --i) model = mutate(model, random);
    const Verdict verdict = check(model);
    ASSERT_EQ(verdict.broken, "") << round << ": " << model[0];
    imported += verdict.imported ? 1 : 0;
  }
  EXPECT_GT(imported, kRounds / 5);
  EXPECT_LT(imported, kRounds * 4 / 5);
}

}  // namespace
}  // namespace otr_fuzz_huggingface

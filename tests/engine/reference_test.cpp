// SPDX-License-Identifier: Apache-2.0
// The engine against an independent one: the published AdamW formulas in double, on exact
// gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/model.h"

namespace outrigger::test {
namespace {

// Largest |difference| / (|weight| + lr): an update is of the size of lr.
double worst(const Case& c) {
  double worst = 0;
  const auto exact = train_in_double(c);
  const auto results =
      run_ranks(c.provider, c.world, [&](int32_t rank, otr_context* context, otr_comm* comm) {
        return train(c, rank, context, comm).bytes();
      });
  for (const auto& result : results) EXPECT_EQ(result.error, "") << text_of(c);
  const Trained trained = simulate(c);
  for (const auto& result : results) EXPECT_EQ(first_difference(result.bytes, trained.bytes()), "");
  for (size_t id = 0; id < exact.size(); ++id) {
    const auto& p = model_parameters()[id];
    if (!p.trainable || p.alias_of >= 0) continue;
    for (size_t i = 0; i < exact[id].size(); ++i) {
      const double got = trained.parameters[id].master[i];
      worst = std::max(worst, std::abs(got - exact[id][i]) / (std::abs(exact[id][i]) + 0.01));
    }
  }
  return worst;
}

TEST(Reference, Float32) {
  for (const int32_t world : {1, 2, 4}) {
    for (const char* order : {"boundary", "micro_step"}) {
      for (const double clip : {0.0, 0.5}) {
        const Case c{Provider::threads, world, 2, "float32", order, 3, clip};
        // A few float32 roundings of gradients whose sums can cancel: measured 5e-6 at the most.
        EXPECT_LT(worst(c), 1e-4) << text_of(c);
      }
    }
  }
}

TEST(Reference, Bfloat16GradientsFloat32Master) {
  const Case c{Provider::threads, 2, 2, "bf16, float32 master", "micro_step", 1, 0.5};
  // A gradient off by 2^-9 turns an update of lr by far less than lr.
  EXPECT_LT(worst(c), 0.2) << text_of(c);
}

TEST(Reference, Bfloat16Everything) {
  const Case c{Provider::threads, 2, 3, "bf16 master and states", "micro_step", 1, 0.5};
  EXPECT_LT(worst(c), 0.4) << text_of(c);
}

// The scale grows within the run: a step that divided by another scale than its passes had would be
// off by a factor of two.
TEST(Reference, Float16AcrossAGrowingScale) {
  for (const char* precision : {"fp16, float32 master", "fp16 master"}) {
    const Case c{Provider::threads, 2, 2, precision, "micro_step", 1, 0.5};
    EXPECT_LT(worst(c), 0.05) << text_of(c);
  }
}

}  // namespace
}  // namespace outrigger::test

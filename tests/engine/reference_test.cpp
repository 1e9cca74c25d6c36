// SPDX-License-Identifier: Apache-2.0
// The engine against an independent one: every rule from its paper, in double, on exact gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/engine/precision.h"
#include "tests/engine/reference.h"
#include "tests/sanitizers.h"

namespace outrigger::test {
namespace {

// The engine's master weights, on which all ranks agree with each other and with the simulation.
std::vector<std::vector<float>> masters(const Case& c) {
  const auto results =
      run_ranks(c.provider, c.world, [&](int32_t rank, otr_context* context, otr_comm* comm) {
        return train(c, rank, context, comm).bytes();
      });
  for (const auto& result : results) EXPECT_EQ(result.error, "") << text_of(c);
  const Trained trained = simulate(c);
  for (const auto& result : results) EXPECT_EQ(first_difference(result.bytes, trained.bytes()), "");
  std::vector<std::vector<float>> all;
  for (const auto& parameter : trained.parameters) all.push_back(parameter.master);
  return all;
}

// Calls compare(difference, weight, movement, the parameter's largest movement) for every element
// that is trained.
template <typename Compare>
void for_each_element(const Case& c, const Compare& compare) {
  const Reference exact = train_in_double(c);
  const auto got = masters(c);
  for (size_t id = 0; id < got.size(); ++id) {
    const auto& p = model_parameters()[id];
    if (!p.trainable || p.alias_of >= 0 || p.count == 0) continue;
    const auto& movement = exact.movement[id];
    const double largest = *std::max_element(movement.begin(), movement.end());
    for (size_t i = 0; i < got[id].size(); ++i) {
      compare(std::abs(got[id][i] - exact.weights[id][i]), std::abs(exact.weights[id][i]),
              movement[i], largest);
    }
  }
}

TEST(Reference, EveryRuleInFloat32) {
  const std::vector<std::string> all = rules();
  for (const std::string& rule : all) {
    for (const int32_t world : {1, 2, 4}) {
      for (const char* order : {"boundary", "micro_step"}) {
        for (const double clip : {0.0, 0.5}) {
          if (!runs(&rule - all.data(), world, order[0] == 'b', clip > 0)) continue;
          Case c{Provider::threads, world, 2, "float32", order, 3, clip};
          c.rule = rule;
          double worst = 0;  // of the weight and one update

          for_each_element(c, [&](double difference, double weight, double, double) {
            worst = std::max(worst, difference / (weight + c.lr));
          });
          // Gradients that cancel keep a few float32 roundings of their summands: 9e-6 at most.
          EXPECT_LT(worst, 2e-5) << text_of(c);
        }
      }
    }
  }
}

// How far a rounding to nearest takes a value, relative to it. Stochastic rounding goes twice as
// far.
double half_unit(kernels::Format format) {
  return format == kernels::Format::bfloat16  ? 0x1p-8
         : format == kernels::Format::float16 ? 0x1p-11
                                              : 0x1p-24;
}

// The largest error that rounding explains, of a weight that moved by no more than `movement`.
double bound_of(const Case& c, double weight, double movement, double largest) {
  const Precision& p = precision_of(c);
  const double wide = p.rounding == kernels::Rounding::stochastic ? 2 : 1;
  // A gradient is rounded when it is given, when it is added and when it is kept, and so are those
  // whose norm it is clipped by.
  const double gradients = 3 * (c.clip > 0 ? 2 : 1) * half_unit(p.compute) * movement;
  // The weight and its momentum are rounded in each window. The weight was no further from where it
  // is than it has moved; 8-bit moments are rounded in units of the largest of their block.
  const double master = p.master == kernels::Format::split ? 0 : half_unit(p.master);
  const double moment =
      kernels::is_block(p.exp_avg) ? 0x1p-7 * largest : half_unit(p.exp_avg) * movement;
  const double kept = kWindows * wide * (master * (weight + 2 * movement) + moment);
  return gradients + kept + 1e-5 * (weight + movement);
}

// SGD shows every factor; AdamW would hide it. The loss scale of float16 grows within the run.
TEST(Reference, EveryPrecisionUnderRulesThatShowFactors) {
  for (const std::string& precision : precisions()) {
    for (const char* rule : {"SGD", "Nesterov"}) {
      for (const double clip : {0.0, 2.0}) {
        Case c{Provider::threads, 2, 2, precision, "micro_step", 1, clip};
        c.rule = rule;
        c.lr = 0.5;
        if (!legal(c)) continue;
        double worst = 0;
        for_each_element(c, [&](double difference, double weight, double movement, double largest) {
          worst = std::max(worst, difference / bound_of(c, weight, movement, largest));
        });
        EXPECT_LT(worst, 1) << text_of(c);
      }
    }
  }
}

}  // namespace
}  // namespace outrigger::test

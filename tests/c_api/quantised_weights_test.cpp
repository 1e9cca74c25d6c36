// SPDX-License-Identifier: Apache-2.0
// What acquires gather as 8-bit integers: whole leaves of a parameter, however many operations and
// ranks it takes, the same on all ranks, and the master keeps its bits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "device_support.h"

namespace {

using namespace otr_test;

constexpr int64_t kLeaf = 256;
// Of two ranks each has more than fits an operation; the last leaf is not whole.
constexpr int64_t kLarge = 1'300'077, kSmall = 1000;

enum class On { host, device, offloaded, all_offloaded };
void PrintTo(On on, std::ostream* out) { *out << static_cast<int>(on); }

std::string config_of(On on, const char* precision) {
  const char* const offload =
      on == On::offloaded ? R"(, "offload_optimizer": {"device": "cpu"})"
      : on == On::all_offloaded
          ? R"(, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"})"
          : "";
  return R"({"optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "gradient_clipping": 0, )" +
         std::string(precision) +
         R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true)" + offload + "}}";
}

// Exact in bfloat16, and in each leaf of another size.
Values weights_of(int64_t count) {
  Values values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto digit = static_cast<double>(i * 37 % 509 - 254);
    values[static_cast<size_t>(i)] = std::ldexp(digit, -static_cast<int>(i / kLeaf % 9));
  }
  return values;
}

float rounded(float x, bool narrow) {
  if (!narrow || x == 0) return x;
  const float half = std::ldexp(1.0F, std::ilogb(x) - 8);  // of a unit of bfloat16
  return std::nearbyint(x / (2 * half)) * (2 * half);
}

// By kernels/reference/integers.h, written down again.
Values sent(const Values& values, bool narrow) {
  Values all(values.size());
  for (size_t first = 0; first < values.size(); first += kLeaf) {
    const size_t end = std::min(values.size(), first + kLeaf);
    float largest = 0;
    for (size_t i = first; i < end; ++i) {
      largest = std::max(largest, std::abs(static_cast<float>(values[i])));
    }
    const float scale = std::max(largest, 0x1p-100F) / 127;
    for (size_t i = first; i < end; ++i) {
      all[i] = rounded(std::nearbyint(static_cast<float>(values[i]) * (1 / scale)) * scale, narrow);
    }
  }
  return all;
}

class QuantisedWeights : public testing::TestWithParam<On> {
 protected:
  // Two ranks of threads; on a device each has its own.
  template <typename Body>
  void run(const char* precision, const Body& body) {
    const auto context = device_context();
    run_ranks(context.get(), 2, [&](int32_t rank, otr_comm* comm) {
      Engine engine(comm, config_of(GetParam(), precision));
      if (GetParam() != On::host) {
        EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, rank));
      }
      engine.add("large", {kLarge}, weights_of(kLarge));
      engine.add("small", {kSmall}, weights_of(kSmall));
      otr_param_options frozen = param_options();
      frozen.trainable = 0;
      engine.add("frozen", {kSmall}, weights_of(kSmall), &frozen);
      engine.commit();
      body(engine, [&](int64_t id) {
        otr_tensor weight;
        EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
        Values values =
            GetParam() == On::host ? values_of(weight) : values_there(context.get(), weight);
        EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
        return values;
      });
      EXPECT_OK(otr_engine_finalize(engine.get()));
    });
  }
};

INSTANTIATE_TEST_SUITE_P(On, QuantisedWeights,
                         testing::Values(On::host, On::device, On::offloaded, On::all_offloaded));

TEST_P(QuantisedWeights, ShowWholeLeavesOverManyOperations) {
  for (const bool narrow : {false, true}) {
    run(narrow ? R"("bf16": {"enabled": true}, )" : "", [&](Engine& engine, const auto& shown) {
      for (const bool ahead : {false, true}) {
        if (ahead) {
          const int64_t ids[] = {1, 0};
          EXPECT_OK(otr_engine_prefetch(engine.get(), ids, 2, nullptr));
        }
        const Values large = shown(0);
        EXPECT_TRUE(large == sent(weights_of(kLarge), narrow)) << ahead;
        EXPECT_FALSE(large == weights_of(kLarge));
        EXPECT_EQ(shown(1), sent(weights_of(kSmall), narrow)) << ahead;
        EXPECT_EQ(shown(2), weights_of(kSmall)) << "every rank has frozen ones";
      }
      EXPECT_TRUE(engine.read(0, OTR_VALUE_PUBLISHED) == weights_of(kLarge));
      EXPECT_TRUE(engine.read(0, OTR_VALUE_MASTER) == weights_of(kLarge));
    });
  }
}

TEST_P(QuantisedWeights, FollowWhatIsWritten) {
  run("", [&](Engine& engine, const auto& shown) {
    const int64_t id = 1;
    otr_tensor weight;
    EXPECT_OK(otr_engine_acquire(engine.get(), &id, 1, nullptr, &weight));
    Values next = weights_of(kSmall);
    for (double& x : next) x *= 3;
    const Tensor value({kSmall}, next);
    EXPECT_OK(otr_engine_parameter_write(engine.get(), id, OTR_VALUE_MASTER, &value));
    EXPECT_EQ(shown(id), sent(next, false)) << "acquired before";
    EXPECT_OK(otr_engine_release(engine.get(), &id, 1, nullptr));
    EXPECT_EQ(shown(id), sent(next, false));
  });
}

TEST_P(QuantisedWeights, ALeafWithAnInfIsNan) {
  run("", [&](Engine& engine, const auto& shown) {
    Values next = weights_of(kSmall);
    next[kLeaf + 3] = HUGE_VAL;
    const Tensor value({kSmall}, next);
    EXPECT_OK(otr_engine_parameter_write(engine.get(), 1, OTR_VALUE_MASTER, &value));
    const Values seen = shown(1);
    for (size_t i = 0; i < seen.size(); ++i) {
      ASSERT_EQ(std::isnan(seen[i]), static_cast<int64_t>(i) / kLeaf == 1) << i;
    }
  });
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's keys for the order of dividing and for the dtype that gradients travel in: whatever
// they say, the mean over the ranks has one value.
#include "../sanitizers.h"
#include "support.h"

namespace {

using namespace otr_test;

constexpr int64_t kCount = 300;

// Not dyadic, and of a size that a sum in float16 would be far off.
Values gradient(int32_t rank) {
  Values values;
  for (int64_t i = 0; i < kCount; ++i) {
    values.push_back(static_cast<double>((i * 37 + rank * 11) % 101 - 50) / 3 * (rank + 1));
  }
  return values;
}

struct Mode {
  const char* members;
  const char* dtype;
};
constexpr Mode kModes[] = {
    {R"("gradient_clipping": 0, )", "float32"},
    {R"("gradient_clipping": 0, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, )",
     "bfloat16"},
    {R"("gradient_clipping": 0, "fp16": {"enabled": true, "loss_scale": 256}, "data_types": {"grad_accum_dtype": "fp32"}, )",
     "float16"}};

// What is asked for, and whether the sum stays one.
struct Keys {
  const char* members;
  bool sum = false;
};
const Keys kKeys[] = {{R"("prescale_gradients": true)"},
                      {R"("gradient_predivide_factor": 4)"},
                      {R"("prescale_gradients": true, "gradient_predivide_factor": 0.5)"},
                      {R"("communication_data_type": "bf16")"},
                      {R"("communication_data_type": "fp16")"},
                      {R"("communication_data_type": "fp32")"},
                      {R"("gradient_allreduce_op": "sum", "prescale_gradients": true)", true}};

// The gradient that a step would use, and the first weights after it.
std::vector<Values> trained(otr_comm* comm, int32_t rank, const Mode& mode, int32_t stage,
                            const std::string& keys) {
  Engine engine(comm, "{" + std::string(mode.members) + keys +
                          R"("optimizer": {"type": "SGD", "params": {"lr": 0.0625}}, )" +
                          R"("zero_optimization": {"reduce_scatter": false, "stage": )" +
                          std::to_string(stage) + "}}");
  engine.add("w", {kCount}, Values(kCount, 1));
  engine.commit();
  const Tensor seed({kCount}, gradient(rank));
  otr_pass* pass = nullptr;
  EXPECT_OK(otr_pass_begin(engine.get(), &seed, 1, nullptr, &pass));
  const Owned<otr_pass> owned(pass);
  otr_tensor scaled;
  EXPECT_OK(otr_pass_get_output_grad(pass, 0, &scaled));
  EXPECT_OK(otr_pass_add_grad(pass, 0, &scaled, nullptr));
  Engine::end(owned);
  otr_step_report report = OTR_STEP_REPORT_INIT;
  EXPECT_OK(otr_engine_reduce(engine.get(), &report));
  std::vector<Values> found{engine.read(0, OTR_VALUE_GRAD)};
  EXPECT_EQ(engine.step().outcome, OTR_STEP_APPLIED);
  found.push_back(engine.read(0));
  return found;
}

TEST(Mean, IsOneWhateverTheOrderOfDividingAndTheDtypeOnTheWay) {
  for (const int32_t world : {1, 2, 3}) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      run_ranks(world, [&](int32_t rank, otr_comm* comm) {
        for (const Mode& mode : kModes) {
          const double carried = std::string_view(mode.dtype) == "float16" ? 256 : 1;
          for (const Keys& keys : kKeys) {
            if (keys.sum && stage == 3) continue;
            if (!outrigger::test::runs(world, stage, &mode - kModes, &keys - kKeys)) continue;
            const std::string same = keys.sum ? R"("gradient_allreduce_op": "sum", )" : "";
            const auto plain = trained(comm, rank, mode, stage, same);
            EXPECT_EQ(trained(comm, rank, mode, stage, std::string(keys.members) + ", "), plain)
                << keys.members << " at stage " << stage << ", " << mode.dtype;
            for (size_t i = 0; i < kCount; ++i) {
              double mean = 0;
              for (int32_t r = 0; r < world; ++r) {
                mean += round_to(mode.dtype, gradient(r)[i] * carried) / carried;
              }
              if (!keys.sum) mean /= world;
              EXPECT_NEAR(plain[0][i], mean, 1e-5);
              EXPECT_NEAR(plain[1][i], 1 - 0.0625 * mean, 1e-5);
            }
          }
        }
      });
      if (testing::Test::HasFailure()) FAIL() << world << " ranks, stage " << stage;
    }
  }
}

}  // namespace

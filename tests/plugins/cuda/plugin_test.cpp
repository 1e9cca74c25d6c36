// SPDX-License-Identifier: Apache-2.0
// The CUDA plugin as a host uses it, on the mock driver.
#include "cuda_support.h"

namespace {

using namespace otr_test;

TEST(CudaPlugin, IsFoundWithItsDevices) {
  const auto context = make_context();
  int32_t count = 0;
  ASSERT_OK(otr_device_count(context.get(), OTR_DEVICE_CUDA, &count));
  EXPECT_EQ(count, 8);
  EXPECT_OK(otr_context_load_plugin(context.get(), "cuda"));  // again: nothing
  EXPECT_OK(otr_context_load_plugin(context.get(), "cuda"));
}

// Of a training on the device and on the host.
void expect_the_hosts_bits(const std::string& config, int small) {
  SCOPED_TRACE(config);
  {
    const auto context = make_context();
    const auto comm = make_self(context.get());
    const std::vector<Values> there = trained_on_cuda(context.get(), comm.get(), config, small);
    EXPECT_EQ(there, trained_on_host(comm.get(), config, small));
    EXPECT_NE(there.at(3), dyadic(6300, 3)) << "a training that does nothing";
  }
  expect_nothing_held();
}

TEST(CudaPlugin, TrainsWithTheHostsBits) {
  for (const char* offload : {"none", "cpu"}) {
    expect_the_hosts_bits(
        R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.03, "weight_decay": 0.1}},
            "gradient_clipping": 0.5,
            "zero_optimization": {"stage": 1, "offload_optimizer": {"device": ")" +
            std::string(offload) + R"("}}})",
        0);
  }
}

// With more parameters than one launch takes.
TEST(CudaPlugin, EveryRuleHasTheHostsBits) {
  for (const char* rule : {"AdamW", "Adagrad", "Lion", "SGD", "Lamb", "Muon"}) {
    expect_the_hosts_bits(R"({"optimizer": {"type": ")" + std::string(rule) +
                              R"(", "params": {"lr": 0.03, "weight_decay": 0.1}},
                               "zero_optimization": {"stage": 2}})",
                          30);
  }
}

TEST(CudaPlugin, EveryFormatHasTheHostsBits) {
  for (
      const char* states :
      {R"("master": {"format": "split"}, "exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"})",
       R"("master": {"format": "bfloat16", "rounding": "stochastic"}, "exp_avg": {"format": "bfloat16", "rounding": "stochastic"})",
       R"("master": {"format": "float32"}, "exp_avg_sq": {"format": "bfloat16"})"}) {
    expect_the_hosts_bits(
        R"({"bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 0.03}},
            "zero_optimization": {"stage": 1}, "outrigger": {"states": {)" +
            std::string(states) + "}}}",
        30);
  }
}

}  // namespace

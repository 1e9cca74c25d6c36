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

TEST(CudaPlugin, TrainsWithTheHostsBits) {
  for (const char* offload : {"none", "cpu"}) {
    const std::string config =
        R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.03, "weight_decay": 0.1}},
            "gradient_clipping": 0.5,
            "zero_optimization": {"stage": 1, "offload_optimizer": {"device": ")" +
        std::string(offload) + R"("}}})";
    {
      const auto context = make_context();
      const auto comm = make_self(context.get());
      const std::vector<Values> there = trained_on_cuda(context.get(), comm.get(), config);
      EXPECT_EQ(there, trained_on_host(comm.get(), config)) << offload;
      EXPECT_NE(there.at(3), dyadic(3000, 3)) << "a training that does nothing";
    }
    expect_nothing_held();
  }
}

}  // namespace

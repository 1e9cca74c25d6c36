// SPDX-License-Identifier: Apache-2.0
// Two hundred million parameters on a device with their states on the host: what the kernel counts,
// what the ledger says, and what the estimate had said before.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "device_support.h"

namespace {

using namespace otr_test;

struct Totals {
  int64_t host = 0, device = 0;
};

Totals estimated(const Engine& engine) {
  std::vector<otr_memory_entry> entries(64);
  entries[0].struct_size = sizeof entries[0];
  size_t count = entries.size();
  EXPECT_OK(otr_engine_estimate(engine.get(), nullptr, entries.data(), &count));
  Totals totals;
  for (size_t i = 0; i < count; ++i) {
    if (std::string(entries[i].purpose) != "total") continue;
    (entries[i].device_type == OTR_DEVICE_CPU ? totals.host : totals.device) =
        entries[i].resident_bytes;
  }
  return totals;
}

TEST(DeviceResident, IsWhatLedgerAndEstimateSay) {
  if (pss() < 0) GTEST_SKIP() << "this kernel has no /proc/self/smaps_rollup";
  constexpr int64_t kParameters = 40, kElements = 5000000;
  const DeviceSolo solo(
      R"({"optimizer": {"type": "AdamW"}, "gradient_clipping": 1.0, "bf16": {"enabled": true,
          "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
          "zero_optimization": {"stage": 2, "reduce_bucket_size": 5000000,
          "offload_optimizer": {"device": "cpu"}}})");
  const DeviceTensor grad(solo.context.get(), simulated(),
                          Tensor({kElements}, Values(kElements, 0.5)));
  Shape shape{kElements};
  for (int64_t i = 0; i < kParameters; ++i) {
    otr_tensor nothing;
    int64_t id = 0;
    EXPECT_OK(otr_tensor_init(nullptr, "float32", 1, shape.data(), &nothing));
    EXPECT_OK(otr_engine_add_parameter(solo.engine.get(), ("p" + std::to_string(i)).c_str(),
                                       &nothing, nullptr, &id));
  }
  const Totals estimate = estimated(solo.engine);
  const int64_t before = pss();
  EXPECT_OK(otr_engine_commit(solo.engine.get()));
  {
    const Owned<otr_pass> pass = solo.engine.begin();
    for (int64_t id = kParameters; id-- > 0;) {
      EXPECT_OK(otr_pass_add_grad(pass.get(), id, &grad, nullptr));
    }
    Engine::end(pass);
  }
  EXPECT_EQ(solo.engine.step().outcome, OTR_STEP_APPLIED);
  const auto grown = static_cast<double>(pss() - before);
  const Totals ledger{resident_bytes(solo.engine, OTR_DEVICE_CPU, "total"),
                      resident_bytes(solo.engine, kSimulated, "total")};
  const auto all = static_cast<double>(ledger.host + ledger.device);
  std::printf("ledger: host %ld, device %ld; the kernel: %.0f, %+.3f %%\n",
              static_cast<long>(ledger.host), static_cast<long>(ledger.device), grown,
              100 * (grown - all) / all);
  EXPECT_LT(std::abs(grown - all) / all, 0.02);
  EXPECT_EQ(estimate.host, ledger.host);
  EXPECT_EQ(estimate.device, ledger.device);
  constexpr double kAll = static_cast<double>(kParameters * kElements);
  EXPECT_NEAR(static_cast<double>(ledger.host) / kAll, 8, 0.4) << "master, gradient, two moments";
  EXPECT_NEAR(static_cast<double>(ledger.device) / kAll, 2, 0.3) << "the weights";
}

}  // namespace

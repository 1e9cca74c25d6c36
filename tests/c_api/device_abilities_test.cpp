// SPDX-License-Identifier: Apache-2.0
// What a plugin's table does not claim is refused before an engine is made, by name; what it claims
// has the same bits, whatever its structs' sizes.
#include <cstdlib>
#include <vector>

#include "device_support.h"

namespace {

using namespace otr_test;

std::string with(const std::string& optimizer, const std::string& more = "",
                 const std::string& zero = "") {
  return R"({"optimizer": {"type": )" + optimizer + R"(}, "zero_optimization": {"stage": 1)" +
         zero + "}" + more + "}";
}

Owned<otr_context> older_context() {
  Owned<otr_context> context = make_context();
  EXPECT_OK(otr_context_load_plugin(context.get(), OTR_OLDER_PLUGIN));
  return context;
}

// After steps by gradients that differ from step to step.
std::vector<Values> trained(otr_context* context, const std::string& config) {
  const auto comm = make_self(context);
  Engine engine(comm.get(), config);
  EXPECT_OK(otr_engine_set_device(engine.get(), kSimulated, 3));
  engine.add("a", {700}, dyadic(700, 1));
  engine.add("b", {5, 60}, dyadic(300, 2));
  engine.commit();
  for (int64_t step = 0; step < 3; ++step) {
    const auto pass = engine.begin();
    const DeviceTensor a(context, simulated(3), Tensor({700}, dyadic(700, 7 + step)));
    const DeviceTensor b(context, simulated(3), Tensor({5, 60}, dyadic(300, 9 + step)));
    EXPECT_OK(otr_pass_add_grad(pass.get(), 0, &a, nullptr));
    EXPECT_OK(otr_pass_add_grad(pass.get(), 1, &b, nullptr));
    Engine::end(pass);
    engine.step();
  }
  std::vector<Values> all = engine.everything();
  EXPECT_OK(otr_engine_finalize(engine.get()));
  return all;
}

TEST(DeviceAbilities, WhatAnOlderPluginClaimsHasTheSameBits) {
  for (const std::string& config :
       {with(R"("AdamW", "params": {"lr": 0.03, "weight_decay": 0.1})"),
        with(R"("SGD", "params": {"lr": 0.5, "momentum": 0.9})",
             R"(, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true})")}) {
    const std::vector<Values> older = trained(older_context().get(), config);
    EXPECT_EQ(older, trained(device_context().get(), config)) << config;
  }
}

TEST(DeviceAbilities, WhatItDoesNotClaimIsRefusedByName) {
  const auto context = older_context();
  const auto comm = make_self(context.get());
  const std::string bf16 = R"(, "bf16": {"enabled": true}, "outrigger": {"states": )";
  struct Refused {
    std::string config;
    const char *value, *instead;
  };
  const Refused all[] = {
      {with(R"("Lamb")"), "optimizer.type = \"Lamb\"", "update by Adam, SGD"},
      {with(R"("Lion")"), "optimizer.type = \"Lion\"", "update by Adam, SGD"},
      // It has Muon's directions, but no products.
      {with(R"("Muon")"), "optimizer.type = \"Muon\"", "update by Adam, SGD"},
      {with(R"("AdamW")", bf16 + R"({"master": {"format": "split"}}})"),
       "outrigger.states.master.format = \"split\"", "keep it in float32, bfloat16"},
      {with(R"("AdamW")", bf16 + R"({"exp_avg_sq": {"format": "block8", "rounding": "nearest"}}})"),
       "outrigger.states.exp_avg_sq.format = \"block8\"", "keep it in float32, bfloat16"},
      {with(R"("AdamW")", bf16 + R"({"exp_avg": {"format": "bfloat16"}}})"),
       "outrigger.states.exp_avg.rounding = \"stochastic\"", "round it to nearest"}};
  for (const Refused& r : all) {
    Engine engine(comm.get(), r.config);
    EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_engine_set_device(engine.get(), kSimulated, 3), r.value,
                 "\"older\"", r.instead, "offload_optimizer.device");
    engine.add("w", {4}, Values(4, 1));  // it is on the host, as before
    engine.commit();
    Engine offloaded(comm.get(),
                     with(R"("Lamb")", "", R"(, "offload_optimizer": {"device": "cpu"})"));
    EXPECT_OK(otr_engine_set_device(offloaded.get(), kSimulated, 3));
  }
  // A part on the host leaves a part on the device.
  for (const char* ratio : {"0.5", "0"}) {
    Engine part(comm.get(), with(R"("Lion")", "",
                                 R"(, "offload_optimizer": {"device": "cpu", "ratio": )" +
                                     std::string(ratio) + "}"));
    EXPECT_FAILS(OTR_E_UNSUPPORTED, otr_engine_set_device(part.get(), kSimulated, 3),
                 "optimizer.type = \"Lion\"", "update by Adam, SGD", "ratio 1");
  }
}

TEST(DeviceAbilities, ATableThatIsTooShortIsRefused) {
  const auto context = make_context();
  setenv("OTR_TEST_SHORT_TABLE", "1", 1);
  EXPECT_FAILS(OTR_E_ABI, otr_context_load_plugin(context.get(), OTR_OLDER_PLUGIN), "version 3",
               "bytes", "install the plugin");
  unsetenv("OTR_TEST_SHORT_TABLE");
}

}  // namespace

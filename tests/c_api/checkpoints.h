// SPDX-License-Identifier: Apache-2.0
// A training whose checkpoints are looked at: its formats, its parameters, its steps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "memory.h"
#include "place.h"

namespace otr_test {

struct Job {
  int32_t world = 1, stage = 1;
  std::string zero = {}, own = {};  // more keys
};

struct Training {
  const char* name;
  const char* keys;
  bool at_stage_0 = true;
};
// Every format of every state, and rules with other states.
inline constexpr Training kTrainings[] = {
    {"float32", R"("optimizer": {"type": "AdamW", "params": {"lr": 0.03}})"},
    {"bf16, float32 states",
     R"("bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 0.03}})"},
    {"bf16 stochastic",
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
        "bf16_optimizer_states": true}, "optimizer": {"type": "AdamW", "params": {"lr": 0.03}},
        "outrigger": {"states": {"master": {"rounding": "stochastic"},
        "exp_avg": {"rounding": "stochastic"}, "exp_avg_sq": {"rounding": "stochastic"}}})",
     false},
    {"split, 8-bit",
     R"("bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 0.03}},
        "outrigger": {"states": {"master": {"format": "split"}, "exp_avg": {"format": "block8"},
        "exp_avg_sq": {"format": "block8"}}})"},
    {"fp16, loss scale",
     R"("fp16": {"enabled": true, "initial_scale_power": 4, "loss_scale_window": 2},
        "optimizer": {"type": "Adam", "params": {"lr": 0.03}})"},
    {"SGD, momentum", R"("optimizer": {"type": "SGD", "params": {"lr": 0.3, "momentum": 0.9}})"},
    {"Lamb", R"("optimizer": {"type": "Lamb", "params": {"lr": 0.03}})"},
    {"Muon", R"("optimizer": {"type": "Muon", "params": {"lr": 0.03}})"},
};

// The keys of `own` and of a kind's section "outrigger" become one section.
inline std::string config(const Training& kind, const Job& shape) {
  std::string keys = kind.keys;
  const std::string section = R"("outrigger": {)";
  const std::string own =
      R"("seed": 11, "skip_outlier_norms": {"window": 4, "deviations": 50})" + shape.own;
  if (const size_t at = keys.find(section); at != std::string::npos) {
    keys.insert(at + section.size(), own + ", ");
  } else {
    keys += ", " + section + own + "}";
  }
  return "{" + keys + R"(, "gradient_clipping": 0.5, "zero_optimization": {"stage": )" +
         std::to_string(shape.stage) + R"(, "reduce_bucket_size": 900)" + shape.zero + "}}";
}

inline constexpr int64_t kParameters = 4;
inline const std::vector<Shape> kShapes{{1500}, {40, 30}, {7}, {300}};

inline void declare(Engine& engine, double first) {
  for (size_t i = 0; i < kShapes.size(); ++i) {
    int64_t count = 1;
    for (const int64_t n : kShapes[i]) count *= n;
    Values values = dyadic(count, static_cast<int64_t>(i));
    for (double& v : values) v *= first;
    otr_param_options options = param_options();
    options.trainable = i == 3 ? 0 : 1;
    engine.add(("p" + std::to_string(i)).c_str(), kShapes[i], values, &options);
  }
  engine.commit();
}

// The gradients depend on the step only, so that any world has the same mean.
inline void step(const Engine& engine, int64_t number) {
  engine.pass({{0, dyadic(1500, number)}, {1, dyadic(1200, number + 1)}, {2, dyadic(7, number)}});
  otr_step_report report = OTR_STEP_REPORT_INIT;
  ASSERT_OK(otr_engine_step(engine.get(), &report));
}

// All that a checkpoint is to bring back, as whole values.
using Everything = std::map<std::string, Values>;
inline Everything everything(const Engine& engine) {
  Everything all;
  for (int64_t id = 0; id < kParameters; ++id) {
    for (const int32_t value :
         {OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ, OTR_VALUE_PUBLISHED}) {
      Tensor out = Tensor::filled(kShapes[static_cast<size_t>(id)], 0);
      const int32_t status = otr_engine_parameter_read(engine.get(), id, value, &out.get());
      if (status == OTR_E_NOT_FOUND) continue;  // not kept
      EXPECT_OK(status);
      all[std::to_string(id) + "/" + std::to_string(value)] = out.values();
    }
  }
  return all;
}

inline int32_t save(const Engine& engine, const Place& place, const char* tag = "a") {
  return otr_engine_save(engine.get(), place.text(), tag, nullptr);
}
inline int32_t load(const Engine& engine, const Place& place, const char* tag = nullptr) {
  return otr_engine_load(engine.get(), place.text(), tag, nullptr);
}

}  // namespace otr_test

// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/api/configuration.h"
#include "core/base/text.h"

namespace otr_fuzz {
namespace {

// A way to hold weights and states, and the first stage at which it is legal.
struct Precision {
  const char* text;
  const char* compute;
  uint32_t first_stage;
};
constexpr Precision kPrecisions[] = {
    {"", "float32", 0},
    {R"("bf16": {"enabled": true}, )", "bfloat16", 0},
    {R"("bf16": {"enabled": true, "check_grad_overflow": true}, "data_types": {"grad_accum_dtype": "fp32"}, )",
     "bfloat16", 0},
    {R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, )", "bfloat16", 1},
    {R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}, )",
     "bfloat16", 1},
    {R"("fp16": {"enabled": true, "loss_scale": 8}, )", "float16", 0},
    {R"("fp16": {"enabled": true, "initial_scale_power": 14, "loss_scale_window": 2, "hysteresis": 1}, )",
     "float16", 0},
    {R"("fp16": {"enabled": true, "initial_scale_power": 1, "min_loss_scale": 2, "hysteresis": 1}, )",
     "float16", 0},
    {R"("fp16": {"enabled": true, "loss_scale": 1, "fp16_master_weights_and_grads": true}, )",
     "float16", 1},
};

constexpr const char* kRules[] = {
    R"("AdamW", "params": {"lr": 0.125})",
    R"("Adam", "params": {"lr": 0.01, "adam_w_mode": false})",
    R"("Host")",
    R"("AdamW", "params": {"lr": 0.001, "weight_decay": 0.1, "betas": [0, 0.5]})",
    R"("Lamb", "params": {"lr": 0.01})",
    R"("Lion", "params": {"lr": 0.01})",
    R"("Muon", "params": {"lr": 0.01, "ns_steps": 3})",
    R"("Adagrad")",
    R"("SGD", "params": {"momentum": 0.5, "nesterov": true})"};

// Short ones, so that a program of a few steps goes through them.
constexpr const char* kSchedules[] = {
    R"("Cosine", "params": {"total_num_steps": 4, "warmup_num_steps": 1})",
    R"("WSD", "params": {"total_num_steps": 4, "decay_num_steps": 2, "decay_type": "sqrt"})",
    R"("WarmupLR", "params": {"warmup_num_steps": 2})",
    R"("WarmupDecayLR", "params": {"total_num_steps": 4, "warmup_num_steps": 2})",
    R"("WarmupCosineLR", "params": {"total_num_steps": 3, "warmup_num_steps": 2})",
    R"("OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 0.5, "cycle_first_step_size": 2, "cycle_second_step_size": 0, "decay_step_size": 1, "decay_mom_rate": 9})",
    R"("LRRangeTest", "params": {"lr_range_test_step_size": 1, "lr_range_test_step_rate": 1e30})"};

constexpr const char* kOwn[] = {
    R"("unused_parameters": "zero")",
    R"("initial_values": "verify")",
    R"("initial_values": "compare")",
    R"("accumulation_divisor": "counted")",
    R"("bucket_buffers": 1)",
    R"("workers": 2)",
    R"("seed": 7)",
    R"("share_parameters": false)",
    R"("states": {"exp_avg": {"format": "bfloat16"}})",
    R"("states": {"master": {"format": "split"}})",
    R"("states": {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}})",
    R"("gradient_clipping_value": 0.5)",
    R"("skip_outlier_norms": {"window": 4, "deviations": 1})",
    R"("max_loss_scale": 65536)"};

constexpr const char* kWrong[] = {"{", R"({"zero_optimization": {"stage": 5}})",
                                  R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})",
                                  R"({"fp16": {"enabled": true, "fp16_optimizer_states": true}})",
                                  R"({"optimizer": {"type": "MuSGD"}})"};

}  // namespace

Configuration draw_configuration(Bytes& bytes) {
  const uint32_t form = bytes.below(32);
  if (form == 0) return {"", "float32"};
  if (form == 1) return {bytes.pick(kWrong), "float32"};
  const Precision& precision = bytes.pick(kPrecisions);
  uint32_t stage = bytes.below(4);
  if (stage < precision.first_stage && form != 2) stage = precision.first_stage;
  constexpr uint32_t kBuckets[] = {1, 256, 512, 4096, 8388608};
  constexpr const char* kClips[] = {"0", "1", "0.001"};
  std::string text = "{";
  text += precision.text;
  text += outrigger::format_text(R"("optimizer": {{"type": {}}}, )", bytes.pick(kRules));
  if (bytes.one_in(4)) {
    text += outrigger::format_text(R"("scheduler": {{"type": {}}}, )", bytes.pick(kSchedules));
  }
  text += outrigger::format_text(R"("gradient_clipping": {}, )", bytes.pick(kClips));
  text += outrigger::format_text(R"("gradient_accumulation_steps": {}, )", 1 + bytes.below(4) % 3);
  // Legal from stage 1 on; on a device not beside a split master.
  const uint32_t offload = bytes.below(8);
  const bool offloads = offload < 3 && (stage > 0 || offload == 0);
  constexpr const char* kRatios[] = {"1", "0.5", "0.9", "0"};
  const std::string offloading =
      !offloads
          ? ""
          : outrigger::format_text(R"(, "offload_optimizer": {{"device": "cpu", "ratio": {}}})",
                                   bytes.pick(kRatios));
  text += outrigger::format_text(
      R"("zero_optimization": {{"stage": {}, "reduce_bucket_size": {}{}}}, )", stage,
      bytes.pick(kBuckets), offloading);
  const uint32_t order = bytes.below(3);
  const char* separator = "";
  text += R"("outrigger": {)";
  if (order != 0) {
    text += outrigger::format_text(R"("reduction_order": "{}")",
                                   order == 1 ? "boundary" : "micro_step");
    separator = ", ";
  }
  constexpr uint32_t kChoices = 1 << std::size(kOwn);
  const uint32_t chosen = bytes.below(kChoices) & bytes.below(kChoices);
  for (size_t i = 0; i < std::size(kOwn); ++i) {
    if ((chosen >> i & 1) == 0) continue;
    text.append(separator).append(kOwn[i]);
    separator = ", ";
  }
  return {text + "}}", precision.compute};
}

std::string draw_optimizer(Bytes& bytes) {
  constexpr const char* kTexts[] = {
      "",
      R"({"type": "AdamW", "params": {"lr": 0.125}})",
      R"({"type": "Adam", "params": {"adam_w_mode": false}, "gradient_clipping": 0.5})",
      R"({"states": {"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}})",
      R"({"states": {"master": {"format": "bfloat16", "rounding": "stochastic"}}, "seed": 3})",
      R"({"states": {"master": {"format": "float16"}}})",
      R"({"states": {"master": {"format": "split"}}})",
      R"({"states": {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8", "rounding": "nearest"}}})",
      R"({"type": "Lamb", "gradient_clipping_value": 0.5})",
      R"({"type": "SGD", "skip_outlier_norms": {"window": 2, "deviations": 0}})",
      R"({"type": "Lion", "states": {"exp_avg": {"format": "block8"}}})",
      R"({"scheduler": {"type": "WSD", "params": {"total_num_steps": 4, "decay_num_steps": 2}}})",
      R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1e30}}})",
      R"({"params": {"lr": -1}})",
      "[]"};
  return bytes.pick(kTexts);
}

}  // namespace otr_fuzz

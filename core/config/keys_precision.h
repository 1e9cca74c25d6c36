// SPDX-License-Identifier: Apache-2.0
// Key table, part 2: bf16, fp16, autocast.
#pragma once

#include "core/config/keys_build.h"

namespace outrigger::config::rows {

inline constexpr Key kPrecision[] = {
    section("bf16", "bfloat16 compute"),
    flag("bf16.enabled", "false", Status::judged, "parameters and gradients in bfloat16"),
    flag("bf16.immediate_grad_update", "false", Status::hint, "when gradients are accumulated",
         "gradients are accumulated as they arrive"),
    flag("bf16.check_grad_overflow", "true", Status::supported,
         "skip the step if a gradient is Inf or NaN", "also honoured with float32 compute"),
    flag("bf16.bf16_master_weights_and_grads", "false", Status::judged,
         "the published bfloat16 weights are the master",
         "rounding nearest; outrigger.states.master.rounding changes it"),
    flag("bf16.bf16_optimizer_states", "false", Status::judged, "both moments in bfloat16",
         "rounding nearest; outrigger.states.exp_avg.rounding and exp_avg_sq.rounding change it"),
    alias("bfloat16", "bf16", Type::section, "other spelling of bf16"),

    section("fp16", "float16 compute"),
    flag("fp16.enabled", "false", Status::judged, "parameters and gradients in float16"),
    flag("fp16.auto_cast", "false", Status::host, "cast the model's inputs"),
    real("fp16.loss_scale", "0.0", 0, kFloat, Status::judged, "fixed loss scale; 0: dynamic",
         "matters where the loss is scaled: fp16.enabled, autocast in fp16"),
    count("fp16.initial_scale_power", "16", 0, 126, Status::judged,
          "first dynamic scale, as a power of two",
          "matters where the loss is scaled: fp16.enabled, autocast in fp16"),
    count("fp16.loss_scale_window", "1000", 1, kInt32, Status::judged,
          "clean windows before the scale doubles",
          "matters where the loss is scaled: fp16.enabled, autocast in fp16"),
    count("fp16.hysteresis", "2", 1, kInt32, Status::judged, "overflows before the scale halves",
          "matters where the loss is scaled: fp16.enabled, autocast in fp16"),
    flag("fp16.consecutive_hysteresis", "false", Status::judged,
         "a clean step refills the hysteresis",
         "matters where the loss is scaled: fp16.enabled, autocast in fp16"),
    real("fp16.min_loss_scale", "1", 0, kFloat, Status::judged, "smallest dynamic scale",
         "matters where the loss is scaled: fp16.enabled, autocast in fp16"),
    flag("fp16.fp16_master_weights_and_grads", "false", Status::judged,
         "the float16 weights are the master"),
    alias("fp16.fp16_master_weights_and_gradients", "fp16.fp16_master_weights_and_grads",
          Type::boolean, "other spelling of fp16_master_weights_and_grads"),
    flag("fp16.fp16_optimizer_states", "false", Status::judged, "moments in float16; never legal"),

    section("torch_autocast", "autocast of the host framework"),
    flag("torch_autocast.enabled", "false", Status::host, "the host casts operation by operation"),
    dtype("torch_autocast.dtype", "null", Status::judged, "dtype that autocast computes in",
          "fp16: the loss is scaled by the keys of the fp16 section"),
    texts("torch_autocast.lower_precision_safe_modules", "null", Status::host,
          "modules whose weights autocast may keep in the low precision"),
};

}  // namespace outrigger::config::rows

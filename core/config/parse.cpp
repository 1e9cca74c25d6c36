// SPDX-License-Identifier: Apache-2.0
// From text to a configuration: read, check each key, check keys together, fill in the structs.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/config/config.h"
#include "core/config/document.h"
#include "core/config/keys.h"
#include "core/config/read_schedule.h"
#include "core/config/relations.h"
#include "core/config/update_rules.h"
#include "core/config/values.h"

namespace outrigger::config {
namespace {

constexpr int64_t kLeaf = kernels::kLeaf;

// Clipping is 1.0 by DeepSpeed's default, but off for a caller who configures nothing.
void default_clipping(Values& values) {
  if (!values.any_from_user()) values.set("gradient_clipping", 0.0, Origin::fallback);
}

void default_order(Values& values, int32_t stage) {
  constexpr std::string_view kOrder = "outrigger.reduction_order";
  if (values.is_null(kOrder)) {
    values.set(kOrder, stage >= 2 ? "micro_step" : "boundary", Origin::derived);
  }
}

void read_pin(Values& values, EngineConfig& config) {
  constexpr std::string_view kPin = "outrigger.host_memory.pin";
  const auto by = [&](std::string_view key) { return values.flag(key) ? Pin::prefer : Pin::off; };
  if (values.is_null(kPin)) {
    config.pin = by("zero_optimization.offload_optimizer.pin_memory");
    config.pin_params = by("zero_optimization.offload_param.pin_memory");
    values.set(kPin, config.pin == Pin::off ? "off" : "prefer", Origin::derived);
    return;
  }
  const std::string pin = values.text(kPin);
  config.pin = pin == "require" ? Pin::require : pin == "off" ? Pin::off : Pin::prefer;
  config.pin_params = config.pin;
}

// Which library there is is asked when the engine has a device.
void read_exchange(const Values& values, EngineConfig& config) {
  constexpr std::string_view kReduction = "outrigger.exchange.reduction";
  config.backend =
      values.text("outrigger.exchange.backend") == "nccl" ? Backend::nccl : Backend::host;
  config.library_sums = values.text(kReduction) == "nccl";
  if (config.library_sums && config.backend != Backend::nccl) {
    fail(OTR_E_CONFIG,
         "{} needs outrigger.exchange.backend \"nccl\": set that, or leave the reduction at "
         "\"ranked\"",
         values.lead(kReduction));
  }
}

// Buckets are cut at whole leaves, so that the bits do not depend on their size.
int64_t bucket_elements(Values& values) {
  constexpr std::string_view kBucket = "zero_optimization.reduce_bucket_size";
  const int64_t asked = values.count(kBucket);
  constexpr int64_t kMost = INT64_MAX / kLeaf * kLeaf;
  const int64_t whole =
      asked >= kMost ? kMost : std::max<int64_t>(1, (asked + kLeaf - 1) / kLeaf) * kLeaf;
  if (whole != asked) values.set(kBucket, whole, Origin::derived);
  return whole;
}

Format format_of(std::string_view dtype) {
  return dtype == "bf16" ? Format::bfloat16 : dtype == "fp16" ? Format::float16 : Format::float32;
}

// With float16 compute, or where the host computes in float16 by autocast.
LossScaling loss_scaling(const Values& values) {
  LossScaling scaling;
  if (!values.flag("fp16.enabled") && combination_of(values).autocast != Autocast::float16) {
    return scaling;
  }
  scaling.dynamic = values.number("fp16.loss_scale") == 0;
  scaling.initial =
      scaling.dynamic ? std::ldexp(1.0, static_cast<int>(values.count("fp16.initial_scale_power")))
                      : values.number("fp16.loss_scale");
  scaling.window = values.count("fp16.loss_scale_window");
  scaling.hysteresis = values.count("fp16.hysteresis");
  scaling.consecutive_hysteresis = values.flag("fp16.consecutive_hysteresis");
  scaling.minimum = values.number("fp16.min_loss_scale");
  if (!values.is_null("outrigger.max_loss_scale")) {
    scaling.maximum = values.number("outrigger.max_loss_scale");
  }
  if (scaling.dynamic && scaling.initial > scaling.maximum) {
    fail(OTR_E_CONFIG, "{} is less than the first scale, 2^{}; lower fp16.initial_scale_power, too",
         values.lead("outrigger.max_loss_scale"), values.count("fp16.initial_scale_power"));
  }
  return scaling;
}

// One warning each for what was accepted without being acted on.
void report_accepted(Values& values) {
  if (!values.dropped_auto.empty()) {
    values.warnings.push_back(format_text("\"auto\" means the default, as in DeepSpeed, at: {}",
                                          fmt::join(values.dropped_auto, ", ")));
  }
  constexpr std::string_view kHostKeys = "outrigger.host_keys";
  for (const Json& path : values.json(kHostKeys)) {
    const Key* key = find_key(path.get<std::string>());
    if (key == nullptr || key->status != Status::host) {
      fail(OTR_E_CONFIG,
           "{}: \"{}\" is not a key that is left to the host framework; "
           "docs/configuration.md says which are",
           values.lead(kHostKeys), path.get<std::string>());
    }
    std::erase(values.left_to_host, values.at(key->path).path);
  }
  if (!values.left_to_host.empty()) {
    values.warnings.push_back(
        format_text("left to the host framework, the engine does not act on them: {}",
                    fmt::join(values.left_to_host, ", ")));
  }
}

// States in two memories, and the parameters in one of them.
void refuse_divided(Values& values, const EngineConfig& config) {
  constexpr std::string_view kRatio = "zero_optimization.offload_optimizer.ratio";
  if (config.offload_params && config.offload_ratio < 1) {
    values.not_built.push_back(format_text(
        "{} is legal but not built yet with {}: a part of the states on the device would update "
        "parameters in host memory; set the ratio to 1, or keep the parameters on the device",
        values.lead(kRatio), values.name("zero_optimization.offload_param.device")));
  }
}

// A plugin has no function that makes 8-bit blocks of gradients. Of weights the host makes
// integers.
void read_quantised(Values& values, EngineKind kind, EngineConfig& config) {
  constexpr std::string_view kWeights = "zero_optimization.zero_quantized_weights";
  const bool is_cut = values.count("zero_optimization.stage") == 3;
  config.quantised_weights = is_cut && values.flag(kWeights);
  if (!is_cut && values.flag(kWeights)) {
    values.warnings.push_back(
        format_text("{} has no effect below zero_optimization.stage 3: an acquire gathers nothing",
                    values.lead(kWeights)));
  }
  constexpr std::string_view kGradients = "zero_optimization.zero_quantized_gradients";
  config.quantised_gradients = values.flag(kGradients);
  const bool sums_there =
      kind == EngineKind::device && !(config.offload_optimizer && config.offload_ratio == 1);
  if (config.quantised_gradients && sums_there) {
    values.not_built.push_back(format_text(
        "{} is legal but not built yet where gradients are summed on a device: set "
        "zero_optimization.offload_optimizer.device to \"cpu\" (with ratio 1), or leave it false",
        values.lead(kGradients)));
  }
}

}  // namespace

int32_t shard_of(const EngineConfig& config, int32_t world) {
  if (config.shard == 0 || world == 1) return world;
  if (world % config.shard != 0) {
    fail(OTR_E_CONFIG,
         "outrigger.mesh.shard (or mics_shard_size, zero_hpz_partition_size) = {} does not divide "
         "{} "
         "ranks: each group has as many; ask for a multiple of it",
         config.shard, world);
  }
  return config.shard;
}

EngineConfig parse_engine(std::string_view json, int32_t world, EngineKind kind) {
  if (world < 1) fail(OTR_E_ARGUMENT, "world size {} is not legal; it is at least 1", world);
  Values values = check(parse_document(json), Form::engine);
  default_clipping(values);
  resolve_old_keys(values);
  resolve_mesh(values, world);
  resolve_batch(values, world);
  apply_legality(values, kind);
  check_pairs(values);

  EngineConfig config;
  read_optimizer(values, config.optimizer);
  read_schedule(values, config.optimizer);
  resolve_states(values, config.optimizer);
  if (kind == EngineKind::device) {
    config.offload_ratio = values.number("zero_optimization.offload_optimizer.ratio");
  }
  config.offload_optimizer =
      combination_of(values).offload_optimizer != Device::none && config.offload_ratio > 0;
  config.offload_params =
      kind == EngineKind::device && combination_of(values).offload_param != Device::none;
  config.live_elements = values.count("zero_optimization.stage3_max_live_parameters");
  refuse_divided(values, config);
  read_quantised(values, kind, config);
  refuse_not_built(values);

  config.stage = static_cast<int32_t>(values.count("zero_optimization.stage"));
  default_order(values, config.stage);
  config.compute = format_of(values.text("data_types.param_dtype"));
  config.accumulator = format_of(values.text("data_types.grad_accum_dtype"));
  config.loss_scaling = loss_scaling(values);
  config.accumulation_steps = static_cast<int32_t>(values.count("gradient_accumulation_steps"));
  const std::string divisor = values.text("outrigger.accumulation_divisor");
  config.divide_at_step = divisor != "configured";
  config.divide_by_counted = divisor == "counted";
  config.average = values.text("gradient_allreduce_op") == "mean";
  config.order =
      values.text("outrigger.reduction_order") == "boundary" ? Order::boundary : Order::micro_step;
  config.bucket_was_set = values.from_user("zero_optimization.reduce_bucket_size");
  config.bucket_elements = bucket_elements(values);
  config.bucket_buffers = static_cast<int32_t>(values.count("outrigger.bucket_buffers"));
  config.workers = static_cast<int32_t>(values.count("outrigger.workers"));
  config.unused =
      values.text("outrigger.unused_parameters") == "zero" ? Unused::zero : Unused::skip;
  const std::string initial = values.text("outrigger.initial_values");
  config.initial = initial == "verify"    ? Initial::verify
                   : initial == "compare" ? Initial::compare
                                          : Initial::rank0;
  config.round_initial = values.flag("outrigger.round_initial_values");
  config.share_parameters = values.flag("outrigger.share_parameters");
  config.shard = static_cast<int32_t>(values.count("outrigger.mesh.shard"));
  config.divide_states = values.text("outrigger.mesh.states") == "all";
  config.asynchronous_saves = values.flag("outrigger.checkpoint.asynchronous");
  read_pin(values, config);
  read_exchange(values, config);
  config.check_overflow = values.flag("bf16.check_grad_overflow") ||
                          config.loss_scaling.initial != 1 || config.loss_scaling.dynamic;
  report_accepted(values);
  config.effective_json = effective_json(values);
  config.warnings = std::move(values.warnings);
  return config;
}

OptimizerConfig parse_optimizer(std::string_view json) {
  Values values = check(parse_document(json), Form::optimizer);
  if (!values.from_user("gradient_clipping")) {
    values.set("gradient_clipping", 0.0, Origin::fallback);
  }
  OptimizerConfig optimizer;
  read_optimizer(values, optimizer);
  if (optimizer.host) {
    fail(
        OTR_E_CONFIG,
        "{} is for engines, whose host updates the weights; shards are updated here: use \"AdamW\" "
        "or another rule",
        values.lead("optimizer.type"));
  }
  read_schedule(values, optimizer);
  optimizer.check_overflow = values.flag("bf16.check_grad_overflow");
  resolve_shard_states(values, optimizer);
  refuse_not_built(values);
  optimizer.warnings = std::move(values.warnings);
  return optimizer;
}

}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
// From text to a configuration: read, check each key, check keys together, fill in the structs.
#include <algorithm>

#include "core/config/config.h"
#include "core/config/document.h"
#include "core/config/effective.h"
#include "core/config/hyperparameters.h"
#include "core/config/relations.h"
#include "core/config/values.h"
#include "core/context/error.h"

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

// One warning each for what was accepted without being acted on.
void report_accepted(Values& values) {
  if (!values.dropped_auto.empty()) {
    values.warnings.push_back(fmt::format("\"auto\" means the default, as in DeepSpeed, at: {}",
                                          fmt::join(values.dropped_auto, ", ")));
  }
  if (!values.left_to_host.empty()) {
    values.warnings.push_back(
        fmt::format("left to the host framework, the engine does not act on them: {}",
                    fmt::join(values.left_to_host, ", ")));
  }
}

}  // namespace

EngineConfig parse_engine(std::string_view json, int32_t world) {
  if (world < 1) fail(OTR_E_ARGUMENT, "world size {} is not legal; it is at least 1", world);
  Values values = check(parse_document(json), Form::engine);
  default_clipping(values);
  resolve_old_keys(values);
  resolve_batch(values, world);
  apply_legality(values, EngineKind::cpu);
  check_pairs(values);

  EngineConfig config;
  read_optimizer(values, config.optimizer);
  resolve_states(values, config.optimizer);
  refuse_not_built(values);

  config.stage = static_cast<int32_t>(values.count("zero_optimization.stage"));
  default_order(values, config.stage);
  config.compute = values.flag("bf16.enabled") ? Format::bfloat16 : Format::float32;
  config.accumulator =
      values.text("data_types.grad_accum_dtype") == "bf16" ? Format::bfloat16 : Format::float32;
  config.accumulation_steps = static_cast<int32_t>(values.count("gradient_accumulation_steps"));
  config.average = values.text("gradient_allreduce_op") == "mean";
  config.order =
      values.text("outrigger.reduction_order") == "boundary" ? Order::boundary : Order::micro_step;
  config.bucket_elements = bucket_elements(values);
  config.bucket_buffers = static_cast<int32_t>(values.count("outrigger.bucket_buffers"));
  config.workers = static_cast<int32_t>(values.count("outrigger.workers"));
  config.unused =
      values.text("outrigger.unused_parameters") == "zero" ? Unused::zero : Unused::skip;
  config.initial =
      values.text("outrigger.initial_values") == "verify" ? Initial::verify : Initial::rank0;
  config.check_overflow = values.flag("bf16.check_grad_overflow");
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
  resolve_shard_states(values, optimizer);
  refuse_not_built(values);
  optimizer.warnings = std::move(values.warnings);
  return optimizer;
}

}  // namespace outrigger::config

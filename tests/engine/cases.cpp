// SPDX-License-Identifier: Apache-2.0
// What the engine's tests run: precisions, rules, and the configuration that a case is.
#include <algorithm>
#include <string>

#include "core/base/text.h"
#include "kernels/kernels.h"
#include "tests/engine/model.h"
#include "tests/engine/precision.h"

namespace outrigger::test {

using kernels::Format;
using kernels::Rounding;

namespace {

constexpr Format F32 = Format::float32;
constexpr Format B16 = Format::bfloat16;
constexpr Format F16 = Format::float16;
const std::vector<Precision> kPrecisions{
    {"float32", F32, F32, F32, F32, F32, Rounding::nearest, ""},
    {"bf16, float32 master", B16, F32, F32, F32, B16, Rounding::nearest,
     R"("bf16": {"enabled": true},)"},
    {"bf16, float32 master, float32 accumulator", B16, F32, F32, F32, F32, Rounding::nearest,
     R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},)"},
    {"bf16 master and states", B16, B16, B16, B16, B16, Rounding::nearest,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},)"},
    {"bf16 master, float32 states", B16, B16, F32, F32, B16, Rounding::nearest,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true},)"},
    {"bf16 stochastic", B16, B16, B16, B16, B16, Rounding::stochastic,
     R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},)",
     R"("states": {"master": {"rounding": "stochastic"}, "exp_avg": {"rounding": "stochastic"},
                   "exp_avg_sq": {"rounding": "stochastic"}},)"},
    {"split master, bf16 moments", B16, Format::split, B16, B16, B16, Rounding::stochastic,
     R"("bf16": {"enabled": true},)",
     R"("states": {"master": {"format": "split"}, "exp_avg": {"format": "bfloat16"},
                   "exp_avg_sq": {"format": "bfloat16"}},)"},
    {"bf16 master, 8-bit moments", B16, B16, Format::block8, Format::positive_block8, F32,
     Rounding::stochastic,
     R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},)",
     R"("states": {"master": {"format": "bfloat16"}, "exp_avg": {"format": "block8"},
                   "exp_avg_sq": {"format": "block8"}},)"},
    {"split master, 8-bit moments to nearest", B16, Format::split, Format::block8,
     Format::positive_block8, B16, Rounding::nearest, R"("bf16": {"enabled": true},)",
     R"("states": {"master": {"format": "split"},
                   "exp_avg": {"format": "block8", "rounding": "nearest"},
                   "exp_avg_sq": {"format": "block8", "rounding": "nearest"}},)"},
    {"fp16, float32 master", F16, F32, F32, F32, F16, Rounding::nearest,
     R"("fp16": {"enabled": true, "initial_scale_power": 3, "loss_scale_window": 2},)"},
    {"fp16, float32 master, float32 accumulator", F16, F32, F32, F32, F32, Rounding::nearest,
     R"("fp16": {"enabled": true, "initial_scale_power": 3, "loss_scale_window": 2},
        "data_types": {"grad_accum_dtype": "fp32"},)"},
    {"fp16 master", F16, F16, F32, F32, F16, Rounding::nearest,
     R"("fp16": {"enabled": true, "initial_scale_power": 3, "loss_scale_window": 2,
                 "fp16_master_weights_and_gradients": true},)"},
};
const std::vector<RuleCase> kRules{
    {"AdamW", "AdamW", "", true, true},
    {"Adagrad", "Adagrad", "", false, true},
    {"Lion", "Lion", "", true, false},
    {"SGD", "SGD", "", false, false},
    {"Nesterov", "SGD", R"(, "momentum": 0.9, "nesterov": true)", true, false},
    {"Lamb", "Lamb", R"(, "max_coeff": 1.5)", true, true},
    {"Muon", "Muon", "", true, true},
};

// The member of an object and a comma beside it taken out of the text.
void remove_member(std::string& text, const std::string& name) {
  const size_t at = text.find('"' + name + "\": {");
  if (at == std::string::npos) return;
  size_t end = text.find('}', at) + 1, begin = at;
  if (text[end] == ',') {
    ++end;
  } else {
    begin = text.rfind(',', at);
  }
  text.erase(begin, end - begin);
}

std::string states_of(const Case& c) {
  std::string text = precision_of(c).states;
  if (!rule_of(c).exp_avg) remove_member(text, "exp_avg");
  if (!rule_of(c).exp_avg_sq) remove_member(text, "exp_avg_sq");
  return text;
}

}  // namespace

const Precision& precision_of(const Case& c) {
  return *std::find_if(kPrecisions.begin(), kPrecisions.end(),
                       [&](const Precision& p) { return c.precision == p.name; });
}

std::vector<std::string> precisions() {
  std::vector<std::string> names;
  for (const Precision& p : kPrecisions) names.emplace_back(p.name);
  return names;
}

const RuleCase& rule_of(const Case& c) {
  return *std::find_if(kRules.begin(), kRules.end(),
                       [&](const RuleCase& r) { return c.rule == r.name; });
}

std::vector<std::string> rules() {
  std::vector<std::string> names;
  for (const RuleCase& r : kRules) names.emplace_back(r.name);
  return names;
}

bool is_matrix(const Case& c, const ModelParameter& p) {
  return c.rule == "Muon" && p.shape.size() == 2 && p.count > 0;
}

bool keeps_exp_avg_sq(const Case& c, const ModelParameter& p) {
  return rule_of(c).exp_avg_sq && !is_matrix(c, p);
}

double loss_scale(const Case& c, int32_t window) {
  // Windows 0, 1 and 2 are clean; the third one lets the scale double, after its own update.
  return precision_of(c).compute != Format::float16 ? 1 : window < 3 ? 8 : 16;
}

bool legal(const Case& c) {
  const Precision& p = precision_of(c);
  const bool low = p.master == Format::bfloat16 || p.master == Format::float16;
  if (c.stage == 0 && low) return false;
  if (c.backend != "host" && c.shard != 0) return false;  // two levels
  if (c.on == On::offload_all && c.stage < 3) return false;
  const bool offloads = c.on == On::offload && c.ratio > 0;
  if (offloads && p.master == Format::split) return false;
  // Keys about moments that nobody keeps.
  if (!rule_of(c).exp_avg && !rule_of(c).exp_avg_sq && p.exp_avg == Format::bfloat16) return false;
  if (!rule_of(c).exp_avg && p.exp_avg == Format::block8) return false;
  if (c.stage == 0 && offloads) return false;
  // DeepSpeed's rule: at stage 0 the accumulator has the model's dtype.
  return c.stage != 0 || p.accumulator == p.compute;
}

std::string config_of(const Case& c) {
  const Precision& p = precision_of(c);
  return outrigger::format_text(
      R"({{{} "gradient_clipping": {}, "gradient_accumulation_steps": {}, "train_micro_batch_size_per_gpu": 1,
      "optimizer": {{"type": "{}", "params": {{"lr": {}, "weight_decay": {}{}}}}},
      "zero_optimization": {{"stage": {}, "reduce_bucket_size": {}{},
                             "zero_quantized_gradients": {}, "zero_quantized_weights": {}, "stage3_max_live_parameters": {}}},
      "outrigger": {{{} "reduction_order": "{}", "bucket_buffers": {}, "workers": {}, "seed": {},
                     "unused_parameters": "{}", "share_parameters": {}, "mesh": {{"shard": {}, "states": "{}"}},
                     "exchange": {{"backend": "{}"}}}}}})",
      p.json, c.clip, c.form == Form::at_once ? 1 : c.accumulation, rule_of(c).type, c.lr, kDecay,
      rule_of(c).params, c.stage, c.bucket,
      c.on == On::offload
          ? outrigger::format_text(R"(, "offload_optimizer": {{"device": "cpu", "ratio": {}}})",
                                   c.ratio)
      : c.on == On::offload_all
          ? R"(, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"})"
          : "",
      c.quantised, c.in_integers, c.live, states_of(c), c.order, c.buffers, c.workers, kSeed,
      c.unused, c.share, c.shard, c.divided ? "all" : "group", c.backend);
}

std::string text_of(const Case& c) {
  return outrigger::format_text(
      "{} world {} stage {} {} {} accumulation {} clip {} bucket {} buffers {} workers {} unused {}"
      "{}{}{}{} {} lr {}{}{}{}{}{}{}{}",
      name_of(c.provider), c.world, c.stage, c.precision, c.order, c.accumulation, c.clip, c.bucket,
      c.buffers, c.workers, c.unused, c.scramble ? " scrambled" : "",
      c.form == Form::callback  ? " callback"
      : c.form == Form::at_once ? " at once"
                                : "",
      c.on == On::device        ? " on a device"
      : c.on == On::offload     ? " on a device, offloaded"
      : c.on == On::offload_all ? " on a device, offloaded with its parameters"
                                : "",
      c.share ? "" : " with copies", c.rule, c.lr,
      c.hosts == 0 ? "" : outrigger::format_text(" hosts {}", c.hosts),
      c.shard == 0 ? ""
                   : outrigger::format_text(" shard {}{}", c.shard, c.divided ? " divided" : ""),
      c.ratio == 1 ? "" : outrigger::format_text(" ratio {}", c.ratio),
      c.backend == "host" ? "" : " by " + c.backend, c.quantised ? " quantised" : "",
      c.in_integers ? " weights in integers" : "",
      c.live == Case().live ? "" : outrigger::format_text(" live {}", c.live));
}

}  // namespace outrigger::test

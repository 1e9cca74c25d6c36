// SPDX-License-Identifier: Apache-2.0
// Formats and roundings of the master weights and of the two moments.
#include <algorithm>

#include "core/base/error.h"
#include "core/config/legality.h"
#include "core/config/relations.h"

namespace outrigger::config {
namespace {

struct State {
  std::string_view name;      // as in outrigger.states
  std::string_view bf16_key;  // the key of DeepSpeed that chooses bfloat16 for it
  std::string_view fp16_key;  // float16
  StateFormat OptimizerConfig::* member;
};

constexpr State kStates[] = {
    {"master", "bf16.bf16_master_weights_and_grads", "fp16.fp16_master_weights_and_grads",
     &OptimizerConfig::master},
    {"exp_avg", "bf16.bf16_optimizer_states", "fp16.fp16_optimizer_states",
     &OptimizerConfig::exp_avg},
    {"exp_avg_sq", "bf16.bf16_optimizer_states", "fp16.fp16_optimizer_states",
     &OptimizerConfig::exp_avg_sq},
};

std::string key_of(const State& state, std::string_view leaf) {
  return format_text("outrigger.states.{}.{}", state.name, leaf);
}

using kernels::name_of;

Format format_named(std::string_view word, const State& state) {
  for (const Format f : {Format::bfloat16, Format::float16, Format::split}) {
    if (word == name_of(f)) return f;
  }
  if (word != name_of(Format::block8)) return Format::float32;
  return state.member == &OptimizerConfig::exp_avg_sq ? Format::positive_block8 : Format::block8;
}

// What DeepSpeed's keys ask for; the legality table lets at most one of them be true.
Format deepspeed_format(const Values& values, const State& state) {
  return values.flag(state.bf16_key)   ? Format::bfloat16
         : values.flag(state.fp16_key) ? Format::float16
                                       : Format::float32;
}

// Decides one state. `open`: the format is unknown until the weights come, so any rounding is
// legal.
StateFormat resolve(Values& values, const State& state, Format deepspeed, bool open,
                    bool host = false) {
  const std::string format_key = key_of(state, "format"), rounding_key = key_of(state, "rounding");
  const bool own = !values.is_null(format_key);
  StateFormat result;
  result.format = own ? format_named(values.text(format_key), state) : deepspeed;
  if (!own && !open) {
    values.set(format_key, std::string(name_of(deepspeed)),
               deepspeed == Format::float32 ? Origin::fallback : Origin::derived);
  }
  for (const std::string_view key : {state.bf16_key, state.fp16_key}) {
    const Format asked = key == state.bf16_key ? Format::bfloat16 : Format::float16;
    if (own && values.from_user(key) && values.flag(key) != (result.format == asked)) {
      fail(OTR_E_CONFIG, "{} contradicts {}; keep one of the two keys, or change one of them",
           values.lead(format_key), values.name(key));
    }
  }
  const bool rounds = result.format == Format::bfloat16 || kernels::is_block(result.format) || open;
  if (!values.is_null(rounding_key)) {
    result.rounding =
        values.text(rounding_key) == "stochastic" ? Rounding::stochastic : Rounding::nearest;
    if (!rounds && result.rounding == Rounding::stochastic) {
      fail(OTR_E_CONFIG,
           "{} {}, as the format is {}; set {} to \"bfloat16\", or leave the rounding out",
           values.lead(rounding_key),
           result.format == Format::float16 ? "is not for float16" : "has nothing to round",
           name_of(result.format), format_key);
    }
  } else {
    // Parity with DeepSpeed where its key asks, else the rounding that loses nothing on average.
    const bool stochastic = rounds && (own || open) && !host;
    result.rounding = stochastic ? Rounding::stochastic : Rounding::nearest;
    values.set(rounding_key, stochastic ? "stochastic" : "nearest", Origin::derived);
  }
  return result;
}

void warn_of_nearest(Values& values, const State& state, const StateFormat& chosen,
                     const OptimizerConfig& optimizer) {
  const std::string rounding_key = key_of(state, "rounding");
  const bool kept = state.name == "exp_avg"      ? optimizer.keeps_exp_avg()
                    : state.name == "exp_avg_sq" ? optimizer.keeps_exp_avg_sq()
                                                 : true;
  const double beta2 = optimizer.beta2;
  const bool host = optimizer.host;
  const bool low = chosen.format == Format::bfloat16 || chosen.format == Format::positive_block8;
  if (!kept || !low || chosen.rounding != Rounding::nearest || values.from_user(rounding_key))
    return;
  if (state.name == "exp_avg_sq" && optimizer.rule == kernels::Rule::adagrad) {
    values.warnings.push_back(
        format_text("Adagrad's sum of squares in bfloat16 with rounding to nearest stops growing "
                    "where a square is below about 1/512 of it; set {} to \"stochastic\" (or to "
                    "\"nearest\" to keep it without this warning)",
                    rounding_key));
  } else if (state.name == "exp_avg_sq" && 1 - beta2 < 1.0 / 512) {
    values.warnings.push_back(
        format_text("the second moment in bfloat16 with rounding to nearest never shrinks at beta2 "
                    "{}: a decrease is less than half a unit in the last place; set {} to "
                    "\"stochastic\" (or to \"nearest\" to keep it without this warning)",
                    beta2, rounding_key));
  } else if (state.name == "master" && host) {
    values.warnings.push_back(format_text(
        "bfloat16 weights lose updates below about 1/512 of the weight, and what the host writes "
        "is "
        "rounded to nearest; keep a float32 master (or set {} to \"nearest\" to go without this "
        "warning)",
        rounding_key));
  } else if (state.name == "master") {
    values.warnings.push_back(
        format_text("bfloat16 weights with rounding to nearest lose updates below about 1/512 of "
                    "the weight (the step report counts them as vanished); set {} to "
                    "\"stochastic\" (or to \"nearest\" to keep it without this warning)",
                    rounding_key));
  }
}

// Of a first moment that is stored at 2^-17 of its block's largest a second moment has to remain.
void check_blocks(const Values& values, const OptimizerConfig& optimizer) {
  if (optimizer.exp_avg.format == Format::block8 && optimizer.keeps_exp_avg_sq() &&
      !kernels::is_block(optimizer.exp_avg_sq.format)) {
    fail(OTR_E_CONFIG,
         "{} needs 8-bit blocks for exp_avg_sq, too: rounded up beside an exact second moment, a "
         "small first moment would make a step without bound; set both to \"block8\", or this one "
         "to "
         "\"bfloat16\"",
         values.lead("outrigger.states.exp_avg.format"));
  }
}

// optimizer.params.fp32_optimizer_states against the format that was chosen.
void check_fp32_states(Values& values, const OptimizerConfig& optimizer) {
  constexpr std::string_view kKey = "optimizer.params.fp32_optimizer_states";
  const bool m = optimizer.keeps_exp_avg(), v = optimizer.keeps_exp_avg_sq();
  if (!m && !v) return;
  const bool any_float32 = (m && optimizer.exp_avg.format == Format::float32) ||
                           (v && optimizer.exp_avg_sq.format == Format::float32);
  if (!values.from_user(kKey)) {
    if (!any_float32) values.set(kKey, false, Origin::derived);
    return;
  }
  if (!values.flag(kKey) && any_float32) {
    fail(OTR_E_CONFIG,
         "{} contradicts float32 moments; leave it out, or ask for bfloat16 moments with "
         "bf16.bf16_optimizer_states or outrigger.states",
         values.lead(kKey));
  }
  if (values.flag(kKey) && !any_float32) {
    values.warnings.push_back(
        format_text("{} has no effect: the moments are not float32, as another key asks (DeepSpeed "
                    "does the same)",
                    values.lead(kKey)));
  }
}

}  // namespace

void resolve_states(Values& values, OptimizerConfig& optimizer) {
  for (const State& state : kStates) {
    StateFormat& chosen = optimizer.*state.member;
    chosen = resolve(values, state, deepspeed_format(values, state), false, optimizer.host);
    warn_of_nearest(values, state, chosen, optimizer);
  }
  optimizer.master_given = true;
  check_blocks(values, optimizer);
  check_fp32_states(values, optimizer);
}

void resolve_shard_states(Values& values, OptimizerConfig& optimizer) {
  const auto excluded = std::ranges::find(rules(), "float16 moments", &Rule::name);
  for (const State& state : kStates) {
    const std::string key = key_of(state, "format");
    if (state.member != &OptimizerConfig::master && !values.is_null(key) &&
        values.text(key) == "float16") {
      fail(OTR_E_CONFIG, "{} is illegal: {}; {}", values.lead(key), excluded->reason,
           excluded->ways_out);
    }
    const bool open =
        state.member == &OptimizerConfig::master && values.is_null(key_of(state, "format"));
    optimizer.*state.member = resolve(values, state, Format::float32, open);
    if (state.member == &OptimizerConfig::master) optimizer.master_given = !open;
  }
  check_blocks(values, optimizer);
  check_fp32_states(values, optimizer);
}

}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
#include "core/config/legality.h"

#include "core/base/error.h"

namespace outrigger::config {
namespace {

constexpr uint8_t kStage0 = 0b0001, kStages12 = 0b0110, kStages012 = 0b0111;
constexpr uint8_t kNone = 0b001, kNvme = 0b100, kNoneOrCpu = 0b011, kOffloaded = 0b110;
constexpr uint8_t kOnDevice = 0b10;

// Illegal rows come first, then what is not built, then the legal ones.
constexpr Rule kRules[] = {
    {.name = "two compute modes",
     .verdict = Verdict::illegal,
     .reason = "bf16.enabled and fp16.enabled are both true; parameters have one compute dtype",
     .ways_out = "set bf16.enabled to false, or fp16.enabled to false",
     .bf16 = Need::yes,
     .fp16 = Need::yes},
    {.name = "float16 moments",
     .verdict = Verdict::illegal,
     .reason = "moments in float16 are excluded on purpose: float16's smallest positive value is "
               "6e-8, so the second moment of a gradient of 1e-4 is 0, and the update then divides "
               "by eps",
     .ways_out = "keep float32 moments, or use bfloat16 ones (bf16 with bf16_optimizer_states, or "
                 "outrigger.states)",
     .fp16_states = Need::yes},
    {.name = "two low-precision masters",
     .verdict = Verdict::illegal,
     .reason =
         "bf16_master_weights_and_grads and fp16_master_weights_and_grads are both true; there is "
         "one master",
     .ways_out = "set one of them to false",
     .bf16_master = Need::yes,
     .fp16_master = Need::yes},
    {.name = "bfloat16 master without bf16",
     .verdict = Verdict::illegal,
     .reason =
         "a bfloat16 master is the published bfloat16 weight itself, so it needs bf16.enabled",
     .ways_out = "set bf16.enabled to true, or keep a float32 master "
                 "(bf16_master_weights_and_grads false, no outrigger.states.master.format)",
     .bf16 = Need::no,
     .bf16_master = Need::yes},
    {.name = "float16 master without fp16",
     .verdict = Verdict::illegal,
     .reason = "a float16 master is the published float16 weight itself, so it needs fp16.enabled",
     .ways_out = "set fp16.enabled to true, or fp16_master_weights_and_grads to false",
     .fp16 = Need::no,
     .fp16_master = Need::yes},
    {.name = "split master without bf16",
     .verdict = Verdict::illegal,
     .reason = "a split master is the published bfloat16 weight and what it lacks of a float32, so "
               "it needs bf16.enabled",
     .ways_out = "set bf16.enabled to true, or keep a float32 master (no "
                 "outrigger.states.master.format)",
     .bf16 = Need::no,
     .split_master = Need::yes},
    {.name = "bfloat16 states without bfloat16 master",
     .verdict = Verdict::illegal,
     .reason = "bf16_optimizer_states requires bf16_master_weights_and_grads",
     .ways_out =
         "set bf16_master_weights_and_grads to true as well, or ask for bfloat16 moments beside a "
         "float32 master with outrigger.states.exp_avg.format and "
         "outrigger.states.exp_avg_sq.format",
     .bf16_master = Need::no,
     .bf16_states = Need::yes},
    {.name = "bfloat16 master at stage 0",
     .verdict = Verdict::illegal,
     .reason = "a low-precision master is refused at stage 0, which keeps the float32 baseline",
     .ways_out = "use zero_optimization.stage 1, 2 or 3, or keep the float32 master",
     .stages = kStage0,
     .bf16_master = Need::yes},
    {.name = "float16 master at stage 0",
     .verdict = Verdict::illegal,
     .reason = "a low-precision master is refused at stage 0, which keeps the float32 baseline",
     .ways_out = "use zero_optimization.stage 1, 2 or 3, or keep the float32 master",
     .stages = kStage0,
     .fp16_master = Need::yes},
    {.name = "optimizer offload at stage 0",
     .verdict = Verdict::illegal,
     .reason = "offload_optimizer needs a stage that shards the optimizer states",
     .ways_out = "use zero_optimization.stage 1, 2 or 3, or offload_optimizer.device \"none\"",
     .stages = kStage0,
     .offload_optimizer = kOffloaded},
    {.name = "optimizer on nvme below stage 3",
     .verdict = Verdict::illegal,
     .reason = "only stage 3 keeps optimizer states on nvme",
     .ways_out = "use zero_optimization.stage 3, or offload_optimizer.device \"cpu\"",
     .stages = kStages12,
     .offload_optimizer = kNvme},
    {.name = "parameter offload below stage 3",
     .verdict = Verdict::illegal,
     .reason = "offload_param needs sharded parameters",
     .ways_out = "use zero_optimization.stage 3, or offload_param.device \"none\"",
     .stages = kStages012,
     .offload_param = kOffloaded},

    {.name = "split master offloaded from a device",
     .verdict = Verdict::not_built,
     .reason = "a split master with one half on a device and one in host memory",
     .ways_out = "keep a float32 master (no outrigger.states.master.format): with "
                 "offload_optimizer.device \"cpu\" the host holds 4 bytes of a weight either way; "
                 "or at stage 3 set offload_param.device to \"cpu\", too; or "
                 "offload_optimizer.device to \"none\"",
     .engines = kOnDevice,
     .split_master = Need::yes,
     .offload_optimizer = kOffloaded,
     .offload_param = kNone},
    {.name = "optimizer on nvme",
     .verdict = Verdict::not_built,
     .reason = "optimizer states on nvme",
     .ways_out = "use offload_optimizer.device \"cpu\"",
     .offload_optimizer = kNvme},
    {.name = "parameter offload without optimizer offload",
     .verdict = Verdict::not_built,
     .reason = "parameters in host memory whose master and states are on a device",
     .ways_out = "use offload_optimizer.device \"cpu\", too, or offload_param.device \"none\"",
     .engines = kOnDevice,
     .offload_optimizer = kNone,
     .offload_param = kOffloaded},
    {.name = "parameters on nvme",
     .verdict = Verdict::not_built,
     .reason = "parameters on nvme",
     .ways_out = "use offload_param.device \"cpu\" or \"none\"",
     .offload_param = kNvme},

    {.name = "float32",
     .verdict = Verdict::legal,
     .reason = "float32 compute, master and states; the loss is scaled if autocast computes in "
               "float16",
     .ways_out = "",
     .bf16 = Need::no,
     .fp16 = Need::no},
    {.name = "float16, float32 master",
     .verdict = Verdict::legal,
     .reason = "float16 compute with loss scaling, float32 master and states",
     .ways_out = "",
     .fp16 = Need::yes,
     .fp16_master = Need::no},
    {.name = "float16 master",
     .verdict = Verdict::legal,
     .reason = "float16 compute and master with loss scaling, float32 states",
     .ways_out = "",
     .fp16 = Need::yes,
     .offload_optimizer = kNoneOrCpu},
    {.name = "split master",
     .verdict = Verdict::legal,
     .reason = "bfloat16 compute; the published weight and 16 bits beside it are a float32 master",
     .ways_out = "",
     .bf16 = Need::yes,
     .split_master = Need::yes},
    {.name = "float32 master",
     .verdict = Verdict::legal,
     .reason = "bfloat16 compute, float32 master and states",
     .ways_out = "",
     .bf16_master = Need::no},
    {.name = "bfloat16 master, float32 states",
     .verdict = Verdict::legal,
     .reason = "bfloat16 compute and master, float32 states",
     .ways_out = "",
     .bf16_states = Need::no,
     .offload_optimizer = kNoneOrCpu},
    {.name = "bfloat16 master and states",
     .verdict = Verdict::legal,
     .reason = "bfloat16 compute, master and states",
     .ways_out = "",
     .bf16_states = Need::yes,
     .offload_optimizer = kNoneOrCpu},
};

bool meets(Need need, bool fact) { return need == Need::any || (need == Need::yes) == fact; }

bool has(uint8_t mask, uint32_t bit) { return ((mask >> bit) & 1U) != 0; }

bool meets(const Rule& rule, const Combination& c, EngineKind engine) {
  return has(rule.stages, static_cast<uint32_t>(c.stage)) &&
         has(rule.engines, static_cast<uint32_t>(engine)) && meets(rule.bf16, c.bf16) &&
         meets(rule.fp16, c.fp16) && meets(rule.bf16_master, c.bf16_master) &&
         meets(rule.fp16_master, c.fp16_master) && meets(rule.bf16_states, c.bf16_states) &&
         meets(rule.fp16_states, c.fp16_states) && meets(rule.split_master, c.split_master) &&
         meets(rule.block_states, c.block_states) &&
         has(rule.offload_optimizer, static_cast<uint32_t>(c.offload_optimizer)) &&
         has(rule.offload_param, static_cast<uint32_t>(c.offload_param));
}

}  // namespace

std::span<const Rule> rules() { return kRules; }

const Rule& judge(const Combination& combination, EngineKind engine) {
  for (const Rule& rule : kRules) {
    if (meets(rule, combination, engine)) return rule;
  }
  fail(OTR_E_INTERNAL, "the legality table has no row for {}", describe(combination));
}

std::string describe(const Combination& c) {
  std::string text = c.bf16 && c.fp16 ? "bf16 and fp16"
                     : c.bf16         ? "bf16"
                     : c.fp16         ? "fp16"
                                      : "float32";
  text += format_text(" at stage {}", c.stage);
  if (c.bf16_master || c.fp16_master) text += ", low-precision master";
  if (c.split_master) text += ", split master";
  if (c.bf16_states || c.fp16_states) text += ", low-precision states";
  if (c.block_states) text += ", 8-bit moments";
  if (c.offload_optimizer == Device::cpu) text += ", optimizer on cpu";
  if (c.offload_optimizer == Device::nvme) text += ", optimizer on nvme";
  if (c.offload_param == Device::cpu) text += ", parameters on cpu";
  if (c.offload_param == Device::nvme) text += ", parameters on nvme";
  return text;
}

}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
// What the parser says about configurations that it does not take, word for word.
#include "tests/config/support.h"

namespace outrigger::config {
namespace {

TEST(Faults, NameLinePathValueRangeAndRemedy) {
  const struct {
    std::string_view text, error;
  } kCases[] = {
      {"{\n  \"zero_optimisation\": {}\n}",
       "line 2, column 3: unknown key \"zero_optimisation\" at the top level; the nearest known "
       "key is \"zero_optimization\""},
      {"{\"zero_optimization\": {\"offload_optimizer\": {\"devise\": \"cpu\"}}}",
       "line 1, column 46: unknown key \"devise\" in zero_optimization.offload_optimizer; the "
       "nearest known key is \"device\""},
      {"{\"stage\": 3}",
       "line 1, column 2: unknown key \"stage\" at the top level; this key belongs at "
       "zero_optimization.stage"},
      {"{\"zero_optimization\": {\"aio\": {}}}",
       "line 1, column 24: unknown key \"aio\" in zero_optimization; this key belongs at the top "
       "level"},
      {"{\"fp16_master_weights_and_gradients\": true}",
       "line 1, column 2: unknown key \"fp16_master_weights_and_gradients\" at the top level; this "
       "key belongs at fp16.fp16_master_weights_and_gradients"},
      {"{\"a\": true}",
       "line 1, column 2: unknown key \"a\" at the top level; remove it (docs/configuration.md "
       "lists all keys)"},
      {"{\"zero_optimization.stage\": 3}",
       "line 1, column 2: unknown key \"zero_optimization.stage\" at the top level; write sections "
       "as objects in objects, not with dots"},
      {"{\"velocity\": 1}",
       "line 1, column 2: unknown key \"velocity\" at the top level; remove it "
       "(docs/configuration.md lists all keys)"},
      {"{\"data_types\": {\"xyz\": 1}}",
       "line 1, column 17: unknown key \"xyz\" in data_types; known here: grad_accum_dtype, "
       "param_dtype, buffer_dtype"},
      {"{\"zero_optimization\": {\"stage\": 4}}",
       "line 1, column 33: zero_optimization.stage = 4 is not legal; legal: an integer from 0 to "
       "3"},
      {"{\"zero_optimization\": {\"stage\": 1.5}}",
       "line 1, column 33: zero_optimization.stage = 1.5 is not legal; legal: an integer from 0 to "
       "3"},
      {"{\"zero_optimization\": {\"stage\": \"2\"}}",
       "line 1, column 33: zero_optimization.stage = \"2\" is not legal; legal: an integer from 0 "
       "to 3; write it without quotes"},
      {"{\"zero_optimization\": {\"stage\": true}}",
       "line 1, column 33: zero_optimization.stage = true is not legal; legal: an integer from 0 "
       "to 3; true and false stand for themselves only"},
      {"{\"zero_optimization\": {\"stage\": null}}",
       "line 1, column 33: zero_optimization.stage = null is not legal; legal: an integer from 0 "
       "to 3; leave the key out for the default 0"},
      {"{\"outrigger\": {\"host_keys\": [\"bf16.enabled\"]}}",
       "line 1, column 29: outrigger.host_keys = a list: \"bf16.enabled\" is not a key that is "
       "left to the host framework; docs/configuration.md says which are"},
      {"{\"zero_optimization\": 2}",
       "line 1, column 23: zero_optimization = 2 is not legal; legal: an object"},
      {"{\"gradient_clipping\": -1}",
       "line 1, column 23: gradient_clipping = -1 is not legal; legal: a number of at least 0, at "
       "most 1e+30"},
      {"{\"optimizer\": {\"params\": {\"betas\": [0.9, 1]}}}",
       "line 1, column 42: optimizer.params.betas[1] = 1 is not legal; legal: two numbers, each "
       "from 0 to below 1"},
      {"{\"optimizer\": {\"params\": {\"betas\": [0.9]}}}",
       "line 1, column 36: optimizer.params.betas = a list is not legal; legal: two numbers, each "
       "from 0 to below 1"},
      {"{\"optimizer\": {\"type\": \"AdamX\"}}",
       "line 1, column 24: optimizer.type = \"AdamX\" is not legal; legal: one of \"Adam\", "
       "\"AdamW\", \"Adagrad\", \"Lion\", \"SGD\", \"Lamb\", \"Muon\", \"Host\" (not built yet: "
       "\"OneBitAdam\", \"OneBitLamb\", \"ZeroOneAdam\", \"MuAdam\", \"MuAdamW\", \"MuSGD\"); the "
       "nearest is \"Adam\""},
      {"{\"optimizer\": {\"params\": {\"lr\": \"auto\"}}}",
       "line 1, column 33: optimizer.params.lr = \"auto\" has to be filled in before it comes "
       "here; legal: a number of at least 0, at most 1e+30; or leave the key out for the default "
       "0.001"},
      {"{\"optimizer\": {\"params\": {\"max_grad_norm\": 1}}}",
       "line 1, column 44: optimizer.params.max_grad_norm = 1 is not possible: use the top-level "
       "key gradient_clipping"},
      {"{\"optimizer\": {\"params\": {\"amsgrad\": true}}}",
       "line 1, column 38: optimizer.params.amsgrad = true is not possible: AMSGrad is not "
       "offered, as in DeepSpeed; leave the key out"},
      {"{\"outrigger\": {\"compat_version\": \"0.18.0\"}}",
       "line 1, column 34: outrigger.compat_version = \"0.18.0\" is not legal; legal: one of "
       "\"0.19.8\"; the nearest is \"0.19.8\""},
      {"{\"zero_optimization\": {\"reduce_bucket_size\": 9007199254740994.0}}",
       "line 1, column 46: zero_optimization.reduce_bucket_size = 9007199254740994.0 is not legal; "
       "legal: an integer of at least 0; beyond 2^53 only an integer without point and exponent is "
       "exact"},
      {"[]", "line 1, column 1: the configuration is a list; it must be an object {…}"},
      {"\n 3", "line 2, column 2: the configuration is 3; it must be an object {…}"},
  };
  for (const auto& c : kCases) expect_fault(engine_fault(c.text), OTR_E_CONFIG, c.error);
}

TEST(Faults, ContradictionsShowBothWaysOut) {
  const struct {
    std::string_view text, error;
  } kCases[] = {
      {"{\"fp16\": {\"fp16_master_weights_and_grads\": "
       "true,\n\"fp16_master_weights_and_gradients\": false}}",
       "line 2, column 38: fp16.fp16_master_weights_and_gradients = false contradicts "
       "fp16.fp16_master_weights_and_grads = true (line 1, column 44): two spellings of one key; "
       "keep one, or give both the same value"},
      {"{\"bf16\": {\"enabled\": true}, \"bfloat16\": {\"enabled\": false}}",
       "line 1, column 53: bfloat16.enabled = false contradicts bf16.enabled = true (line 1, "
       "column 22): two spellings of one key; keep one, or give both the same value"},
      {"{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true, \"offload_optimizer\": "
       "{\"device\": \"none\"}}}",
       "line 1, column 51: zero_optimization.cpu_offload = true is the older form of "
       "zero_optimization.offload_optimizer.device = \"none\" (line 1, column 89); keep only the "
       "newer one"},
      {"{\"zero_optimization\": {\"stage\": 3}, \"gradient_allreduce_op\": \"sum\"}",
       "line 1, column 62: gradient_allreduce_op = \"sum\" is not legal with "
       "zero_optimization.stage 3; use \"mean\", or stage 0 to 2"},
      {"{\"zero_optimization\": {\"stage\": 2}, \"prescale_gradients\": true}",
       "line 1, column 59: prescale_gradients = true contradicts zero_optimization.reduce_scatter "
       "= true (default) at zero_optimization.stage 2; leave it out, or set reduce_scatter to "
       "false: the mean is the same either way"},
      {"{\"zero_optimization\": {\"stage\": 3}, \"gradient_predivide_factor\": 2}",
       "line 1, column 66: gradient_predivide_factor = 2 contradicts "
       "zero_optimization.reduce_scatter = true (default) at zero_optimization.stage 3; leave it "
       "out, or set reduce_scatter to false: the mean is the same either way"},
      {"{\"zero_optimization\": {\"stage3_max_live_parameters\": 5, \"max_live_parameters\": 6}}",
       "line 1, column 80: zero_optimization.max_live_parameters = 6 contradicts "
       "zero_optimization.stage3_max_live_parameters = 5 (line 1, column 54): two spellings of one "
       "key; keep one, or give both the same value"},
      {"{\"data_types\": {\"param_dtype\": \"bf16\"}}",
       "line 1, column 32: data_types.param_dtype = \"bf16\" contradicts bf16.enabled = false "
       "(default) and fp16.enabled = false (default), which choose fp32; leave it out, or enable "
       "the mode of that dtype"},
      {"{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": false}}}",
       "line 1, column 59: optimizer.params.adam_w_mode = false contradicts optimizer.type = "
       "\"AdamW\" (line 1, column 24): AdamW's decay is always decoupled; use type \"Adam\" for "
       "L2, or leave adam_w_mode out"},
      {"{\"optimizer\": {\"params\": {\"fp32_optimizer_states\": false}}}",
       "line 1, column 52: optimizer.params.fp32_optimizer_states = false contradicts float32 "
       "moments; leave it out, or ask for bfloat16 moments with bf16.bf16_optimizer_states or "
       "outrigger.states"},
      {"{\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true},\n"
       "\"zero_optimization\": {\"stage\": 1},\n"
       "\"outrigger\": {\"states\": {\"master\": {\"format\": \"float32\"}}}}",
       "line 3, column 47: outrigger.states.master.format = \"float32\" contradicts "
       "bf16.bf16_master_weights_and_grads = true (line 1, column 61); keep one of the two keys, "
       "or change one of them"},
      {"{\"bf16\": {\"bf16_optimizer_states\": false},\n"
       "\"outrigger\": {\"states\": {\"exp_avg\": {\"format\": \"bfloat16\"}}}}",
       "line 2, column 48: outrigger.states.exp_avg.format = \"bfloat16\" contradicts "
       "bf16.bf16_optimizer_states = false (line 1, column 36); keep one of the two keys, or "
       "change one of them"},
      {"{\"outrigger\": {\"states\": {\"exp_avg\": {\"rounding\": \"stochastic\"}}}}",
       "line 1, column 51: outrigger.states.exp_avg.rounding = \"stochastic\" has nothing to "
       "round, as the format is float32; set outrigger.states.exp_avg.format to \"bfloat16\", or "
       "leave the rounding out"},
  };
  for (const auto& c : kCases) expect_fault(engine_fault(c.text), OTR_E_CONFIG, c.error);
  EXPECT_EQ(engine_fault("{\"bf16\": {\"enabled\": true}, \"bfloat16\": {\"enabled\": true}}").text,
            "");
}

TEST(Faults, WhatIsNotBuiltIsNamedOnlyWhenAskedFor) {
  const struct {
    std::string_view text, part;
  } kAsking[] = {
      {"{\"optimizer\": {\"type\": \"zerooneadam\"}}",
       "line 1, column 24: optimizer.type = \"zerooneadam\" is recognised but not built yet: use "
       "Adam or "
       "AdamW"},
      {"{\"optimizer\": {\"type\": \"OneBitAdam\", \"params\": {\"freeze_step\": 400}}}",
       "line 1, column 24: optimizer.type = \"OneBitAdam\" is recognised but not built yet: use "
       "Adam or AdamW or Adagrad or Lion or SGD or Lamb or Muon or Host; with "
       "zero_optimization.zero_quantized_gradients their gradients go in 8 bits"},
      {"{\"zero_optimization\": {\"zenflow\": {\"topk_ratio\": 0.1}}}",
       "line 1, column 35: zero_optimization.zenflow = an object is recognised but not built yet: "
       "leave the section out"},
      {"{\"zero_optimization\": {\"zero_quantized_nontrainable_weights\": true}}",
       "zero_quantized_nontrainable_weights = true"},
      {"{\"zero_optimization\": {\"zeropp_loco_param\": {\"err_beta\": 0.8}}}",
       "zero_quantized_gradients has no error feedback here"},
      {"{\"managed_gradient_accumulation\": false}", "managed_gradient_accumulation = false"},
      {"{\"compile\": {\"deepcompile\": true}}", "compile = an object"},
      {"{\"flops_profiler\": {\"enabled\": true}, \"tensor_parallel\": {\"autotp_size\": 2}}",
       "tensor_parallel"},
      {"{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", "
       "\"nvme_path\": \"/n\"}}}",
       "parameters on nvme; use offload_param.device \"cpu\" or \"none\""},
      {"{\"data_types\": {\"grad_accum_dtype\": \"fp16\"}}", "grad_accum_dtype = \"fp16\""},
  };
  for (const auto& c : kAsking)
    expect_fault_with(engine_fault(c.text), OTR_E_UNSUPPORTED, {c.part});
  const std::string_view kSilent[] = {
      "{\"scheduler\": null}",
      "{\"scheduler\": {\"type\": null}}",
      "{\"zero_optimization\": {\"offload_param\": null, \"offload_optimizer\": {\"device\": "
      "\"none\"}}}",
      "{\"zero_optimization\": {\"zenflow\": null, \"zero_quantized_weights\": false, "
      "\"mics_shard_size\": -1, \"zero_hpz_partition_size\": 1}}",
      "{\"wall_clock_breakdown\": false, \"compile\": {\"enabled\": false}, \"amp\": {\"enabled\": "
      "false}}",
      "{\"autotuning\": {}, \"pipeline\": null, \"elasticity\": {\"enabled\": false, "
      "\"max_train_batch_size\": 4}}",
      "{\"fp16\": {\"enabled\": false, \"loss_scale\": 128, \"min_loss_scale\": 0.0, "
      "\"initial_scale_power\": 32}}",
  };
  for (const std::string_view text : kSilent) EXPECT_EQ(engine_fault(text).text, "") << text;
  expect_fault_with(
      engine_fault(
          "{\"optimizer\": {\"type\": \"MuSGD\"}, \"checkpoint\": {\"load_universal\": true}}"),
      OTR_E_UNSUPPORTED,
      {"optimizer.type = \"MuSGD\"", "; also line 1, column 67: checkpoint.load_universal"});
  // A fault of the text comes before what is not built.
  EXPECT_EQ(engine_fault("{\"optimizer\": {\"type\": \"SGD\"}, \"x\": 1}").status, OTR_E_CONFIG);
}

}  // namespace
}  // namespace outrigger::config

// SPDX-License-Identifier: Apache-2.0
// Key table, part 1: batch, gradients, optimizer.
#pragma once

#include "core/config/keys_build.h"

namespace outrigger::config::rows {

inline constexpr Words kSums =
    "the mean is the same: the sum over ranks is float32 and divided once, after it; not beside "
    "reduce_scatter true and the mean at stages 2 and 3, as in DeepSpeed; a float16 accumulator "
    "holds the undivided sum: data_types.grad_accum_dtype fp32 gives it room";

inline constexpr Key kTraining[] = {
    count("train_batch_size", "null", 1, kInt32, Status::supported,
          "samples of one optimizer step over all ranks",
          "= train_micro_batch_size_per_gpu x gradient_accumulation_steps x world size"),
    count("train_micro_batch_size_per_gpu", "null", 1, kInt32, Status::supported,
          "samples of one pass on one rank", "only its product with the others is checked"),
    count("gradient_accumulation_steps", "null", 1, kInt32, Status::supported,
          "passes in one optimizer step", "derived from the batch sizes if absent, else 1"),
    flag("managed_gradient_accumulation", "true", Status::not_built,
         "the engine finds the accumulation boundary itself",
         "leave it true and call otr_engine_step after every pass"),
    real("gradient_clipping", "1.0", 0, kFloat, Status::supported,
         "largest L2 norm of the mean gradient; 0: no clipping",
         "without any configuration the default is 0"),
    flag("prescale_gradients", "false", Status::supported, "divide gradients before the sum",
         kSums),
    real("gradient_predivide_factor", "1.0", 1e-30, kFloat, Status::supported,
         "divide gradients by this before the sum and by the rest after it", kSums),
    choice("gradient_allreduce_op", "\"mean\"", "mean|sum", "", Status::supported,
           "how gradients of ranks combine", "sum: not with stage 3"),
    dtype("communication_data_type", "null", Status::hint,
          "dtype in which gradients are summed over ranks",
          "gradients travel as they were given, in the compute dtype, and are summed in float32, "
          "which is at least as exact as any choice: all give the same bits"),
    dtype("seq_parallel_communication_data_type", "\"fp32\"", Status::host,
          "dtype of the host's sequence-parallel collectives"),
    alias("seq_parallel_comm_data_type", "seq_parallel_communication_data_type", Type::dtype,
          "other spelling of seq_parallel_communication_data_type"),
    flag("sparse_gradients", "false", Status::not_built, "sparse embedding gradients",
         "hand dense gradients over"),
    flag("disable_allgather", "false", Status::hint, "collective for publishing parameters",
         "parameters are published in shared memory or by the communicator's all-gather"),
    flag("graph_harvesting", "false", Status::host, "capture of device graphs"),

    section("data_types", "dtypes of gradients and buffers"),
    dtype("data_types.grad_accum_dtype", "null", Status::supported,
          "dtype of the gradient accumulator",
          "null: the compute dtype; fp32 and bf16, at every stage"),
    dtype("data_types.param_dtype", "null", Status::supported, "dtype of the parameters",
          "must equal the mode that bf16.enabled and fp16.enabled choose"),
    dtype("data_types.buffer_dtype", "null", Status::host, "dtype of the model's buffers"),

    section("optimizer", "the update rule; absent: AdamW with its defaults"),
    choice("optimizer.type", "\"AdamW\"", "Adam|AdamW|Adagrad|Lion|SGD|Lamb|Muon|Host",
           "OneBitAdam|OneBitLamb|ZeroOneAdam|MuAdam|MuAdamW|MuSGD", Status::supported,
           "name of the rule",
           "Adam means AdamW unless adam_w_mode is false; Host: the caller updates the weights, "
           "between otr_engine_reduce and otr_engine_step"),
    flag("optimizer.legacy_fusion", "false", Status::hint, "fusion of the optimizer's loops"),
    section("optimizer.params", "hyperparameters"),
    real(
        "optimizer.params.lr", "0.001", 0, kFloat, Status::supported, "learning rate",
        "otr_engine_set_group_value changes it between steps; default for Adagrad: 0.01, for Muon: "
        "0.02"),
    Key{"optimizer.params.betas", Type::number_pair, "[0.9, 0.999]", Status::supported,
        "decay of the first and of the second moment",
        "default for Lion, which uses the second for its moment: [0.9, 0.99]; for Muon, whose "
        "other parameters they are for: [0.9, 0.95]",
        "", "", 0, 1, true},
    real("optimizer.params.eps", "1e-08", 1e-30, kFloat, Status::supported,
         "added to the root of the second moment, after bias correction",
         "default for Adagrad and Muon: 1e-10"),
    real("optimizer.params.weight_decay", "0.0", 0, kFloat, Status::supported,
         "weight decay; decoupled (AdamW, Lion, Muon), L2 (Adam with adam_w_mode false, Adagrad, "
         "SGD), or "
         "in the direction (Lamb)"),
    flag("optimizer.params.bias_correction", "true", Status::supported,
         "divide the moments by 1 - beta^t"),
    flag("optimizer.params.adam_w_mode", "true", Status::supported,
         "type Adam, and Muon's other parameters: decoupled decay (true) or L2 (false)"),
    Key{"optimizer.params.momentum", Type::number, "0.0", Status::supported,
        "SGD, Muon: how much of the last direction is kept",
        "SGD keeps a state, exp_avg, where it is above 0; default for Muon: 0.95", "", "", 0, 1,
        true},
    real("optimizer.params.dampening", "0.0", 0, 1, Status::supported,
         "SGD: the gradient's part in the momentum is 1 less this, after the first step"),
    flag("optimizer.params.nesterov", "false", Status::supported, "SGD, Muon: Nesterov's momentum",
         "default for Muon: true"),
    real("optimizer.params.muon_lr", "null", 0, kFloat, Status::supported,
         "Muon: learning rate of the matrices", "default: lr"),
    real("optimizer.params.adam_lr", "null", 0, kFloat, Status::supported,
         "Muon: learning rate of the other parameters",
         "default: lr, and 0.0003 where that is not given either"),
    count("optimizer.params.ns_steps", "5", 1, 99, Status::supported,
          "Muon: Newton-Schulz iterations"),
    choice("optimizer.params.adjust_lr_fn", "\"original\"", "original|match_rms_adamw", "",
           Status::supported, "Muon: what lr is multiplied by for a matrix of A rows and B columns",
           "original: sqrt(max(1, A/B)); match_rms_adamw: 0.2 sqrt(max(A, B))"),
    choice("optimizer.params.ns_method", "\"gram\"", "standard|gram", "", Status::hint,
           "Muon: order of the Newton-Schulz products",
           "both name one polynomial; it is computed in float32"),
    flag("optimizer.params.per_head_muon", "false", Status::not_built,
         "Muon: orthogonalise each attention head by itself",
         "declare each head as a parameter of its own, or leave it false"),
    real("optimizer.params.max_coeff", "10.0", 0, kFloat, Status::supported,
         "Lamb: the largest trust ratio of a layer"),
    real("optimizer.params.min_coeff", "0.01", 0, kFloat, Status::supported,
         "Lamb: the smallest trust ratio of a layer"),
    flag("optimizer.params.torch_adam", "false", Status::hint, "use PyTorch's Adam",
         "the same formula; this engine's kernel runs it"),
    flag("optimizer.params.fp32_optimizer_states", "true", Status::supported, "moments in float32",
         "bf16.bf16_optimizer_states and outrigger.states decide; a contradiction is an error"),
    flag("optimizer.params.amsgrad", "false", Status::refused, "keep the largest second moment",
         "AMSGrad is not offered, as in DeepSpeed; leave the key out"),
    any("optimizer.params.max_grad_norm", "null", Status::refused, "clipping inside the optimizer",
        "use the top-level key gradient_clipping"),

    flag("zero_allow_untested_optimizer", "false", Status::hint, "allow optimizers of the host",
         "outrigger.torch asks for it at stages 1 to 3"),
    flag("zero_force_ds_cpu_optimizer", "true", Status::hint, "require the CPU kernel with offload",
         "the engine's own kernel always runs"),
};

}  // namespace outrigger::config::rows

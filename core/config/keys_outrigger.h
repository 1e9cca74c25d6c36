// SPDX-License-Identifier: Apache-2.0
// Key table, part 3: own keys.
#pragma once

#include "core/config/keys_build.h"

namespace outrigger::config::rows {

inline constexpr Words kFormatNote =
    "default: what the bf16 or fp16 section asks for, else float32; a contradiction with it is an "
    "error";
inline constexpr Words kMomentFormat =
    "storage format; block8: 256 elements of 8 bits with a scale of their own; float16 is never "
    "legal";
inline constexpr Words kRoundingNote =
    "default: nearest where a DeepSpeed key asks for bfloat16, stochastic where this section does; "
    "float16 is rounded to nearest only, split and float32 lose nothing";

inline constexpr Key kOutrigger[] = {
    section("outrigger", "keys that DeepSpeed does not have"),
    choice("outrigger.compat_version", "\"0.19.8\"", "0.19.8", "", Status::supported,
           "DeepSpeed version whose keys and defaults are followed"),
    count("outrigger.seed", "0", 0, 18446744073709551615.0, Status::supported,
          "seed of stochastic rounding"),
    section("outrigger.states", "storage of the master weights and of the moments"),
    section("outrigger.states.master", "the weights that the optimizer updates"),
    choice("outrigger.states.master.format", "null", "float32|bfloat16|float16|split", "",
           Status::judged,
           "storage format; split: 16 bits beside the published bfloat16, together a float32",
           kFormatNote),
    choice("outrigger.states.master.rounding", "null", "nearest|stochastic", "", Status::supported,
           "rounding of bfloat16 stores", kRoundingNote),
    section("outrigger.states.exp_avg", "the first moment, or SGD's momentum"),
    choice("outrigger.states.exp_avg.format", "null", "float32|bfloat16|float16|block8", "",
           Status::judged, kMomentFormat, kFormatNote),
    choice("outrigger.states.exp_avg.rounding", "null", "nearest|stochastic", "", Status::supported,
           "rounding of bfloat16 and block8 stores", kRoundingNote),
    section("outrigger.states.exp_avg_sq", "the second moment, or Adagrad's sum of squares"),
    choice("outrigger.states.exp_avg_sq.format", "null", "float32|bfloat16|float16|block8", "",
           Status::judged, kMomentFormat, kFormatNote),
    choice("outrigger.states.exp_avg_sq.rounding", "null", "nearest|stochastic", "",
           Status::supported, "rounding of bfloat16 and block8 stores", kRoundingNote),
    choice(
        "outrigger.reduction_order", "null", "micro_step|boundary", "", Status::supported,
        "reduce gradients over ranks after every pass, or once in a step",
        "default: boundary at stages 0 and 1, micro_step at stages 2 and 3; either is bitwise the "
        "same at every stage"),
    real("outrigger.gradient_clipping_value", "0.0", 0, kFloat, Status::supported,
         "largest magnitude of an element of the mean gradient; 0: any",
         "in place of gradient_clipping, which must then be absent or 0"),
    section("outrigger.skip_outlier_norms",
            "leaves out steps whose gradient norm is far beyond the last ones"),
    count("outrigger.skip_outlier_norms.window", "0", 0, 65536, Status::supported,
          "how many of the last norms to compare with; 0: no step is left out",
          "compared once half as many were seen; norms of steps left out are among them"),
    real("outrigger.skip_outlier_norms.deviations", "6.0", 0, kFloat, Status::supported,
         "a norm is left out beyond the mean and so many standard deviations"),
    section("outrigger.mesh", "groups of ranks that each have the whole training"),
    count("outrigger.mesh.shard", "0", 0, kInt32, Status::supported,
          "consecutive ranks over which a group cuts what the stage cuts; 0: all ranks",
          "a divisor of the number of ranks; a group's ranks hold more, and gather from each other "
          "only; sums go over all groups"),
    choice("outrigger.mesh.states", "\"group\"", "group|all", "", Status::supported,
           "over which ranks the stage cuts gradients and states: those of a group, or all",
           "\"all\": only parameters are cut over a group; a step gathers them across groups"),
    section("outrigger.checkpoint", "checkpoints"),
    flag("outrigger.checkpoint.asynchronous", "false", Status::supported,
         "reserve memory for the copies that asynchronous saves write",
         "as much as a rank's masters and moments; then it is part of the estimate and of commit's "
         "check; else the first asynchronous save takes it"),
    section("outrigger.host_memory", "host memory that a device copies from and to"),
    choice(
        "outrigger.host_memory.pin", "null", "require|prefer|off", "", Status::supported,
        "page-locks it, so that copies run beside the host; prefer: go on where that is refused",
        "default: prefer, but off where zero_optimization.offload_optimizer.pin_memory is false; "
        "a CPU engine has no such memory"),
    section("outrigger.exchange", "how ranks exchange what lies on devices"),
    choice("outrigger.exchange.backend", "\"host\"", "host|nccl", "", Status::supported,
           "by way of the host and its communicator, or device to device by NCCL",
           "nccl: sums of gradients on devices, and published parameters at stages 1 and 2; CUDA "
           "devices, one a rank, and a communicator of one level"),
    choice("outrigger.exchange.reduction", "\"ranked\"", "ranked|nccl", "", Status::supported,
           "sums in rank order, with the bits of every other communicator, or by NCCL in its own "
           "order and the gradients' precision",
           "nccl needs the backend nccl; docs/contract.md says what it promises"),
    section("outrigger.muon", "optimizer.type Muon"),
    texts("outrigger.muon.adam_parameters", "[\"embed\", \"lm_head\"]", Status::supported,
          "a parameter whose name contains one of these, in any case, is no matrix",
          "AdamW updates it, as it does those of fewer than two dimensions; dimensions after the "
          "first count as one; the default is DeepSpeed's"),
    count("outrigger.bucket_buffers", "4", 1, 1024, Status::supported,
          "gradient buckets that may be on their way at a time"),
    count("outrigger.workers", "0", 0, 4096, Status::supported,
          "threads for updates and reductions; 0: the context's number"),
    choice("outrigger.accumulation_divisor", "\"configured\"",
           "configured|configured_at_step|counted", "", Status::supported,
           "what divides a window's gradients, and when: gradient_accumulation_steps, as the "
           "outputs' gradients are scaled or at the step, or at the step the number of steps that "
           "the window had",
           "with configured_at_step gradients on their way carry the loss scale alone; counted is "
           "for windows that the caller ends (otr_engine_set_boundary)"),
    choice("outrigger.unused_parameters", "\"skip\"", "skip|zero", "", Status::supported,
           "a parameter without a gradient on any rank: left alone, or updated with zero",
           "skip is PyTorch's meaning, zero is DeepSpeed's: the moments decay"),
    choice(
        "outrigger.initial_values", "\"rank0\"", "rank0|verify|compare", "", Status::supported,
        "rank 0's initial values win, and must equal everyone's (verify), or are sent only where "
        "a rank gave others (compare)",
        "with compare every rank keeps a copy of the values given at declaration until commit, "
        "4 bytes an element"),
    flag("outrigger.round_initial_values", "false", Status::supported,
         "initial values are rounded to the compute dtype before the master weights take them",
         "false: a float32 or split master begins with the float32 values given; true is "
         "DeepSpeed's way, whose masters begin with those of a 16-bit module"),
    real("outrigger.max_loss_scale", "null", 1, 0x1p126, Status::supported,
         "largest dynamic loss scale", "default: 2^126; matters where the loss is scaled"),
    texts("outrigger.host_keys", "[]", Status::supported,
          "keys left to the host framework that it acts on, by their paths",
          "the warning of what nobody acts on leaves them out"),
    flag("outrigger.share_parameters", "true", Status::supported,
         "ranks that share memory have one copy of the published parameters; false: each its own",
         "false is for hosts that write into parameters in place; at stage 3 acquire is then "
         "collective"),
};

}  // namespace outrigger::config::rows

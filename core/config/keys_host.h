// SPDX-License-Identifier: Apache-2.0
// Key table, part 4: what is left to the host framework, and what other parts of DeepSpeed read.
#pragma once

#include "core/config/keys_build.h"

namespace outrigger::config::rows {

inline constexpr Words kOut = "leave the section out, or set its \"enabled\" to false";

inline constexpr Key kHost[] = {
    count("steps_per_print", "null", 1, kAnyCount, Status::host, "steps between progress lines",
          "the library never prints; print otr_step_report"),
    flag("wall_clock_breakdown", "false", Status::host, "print timings",
         "the library never prints"),
    flag("memory_breakdown", "false", Status::host, "print memory", "otr_engine_memory tells it"),
    flag("dump_state", "false", Status::host, "print the state", "otr_engine_config tells it"),
    flag("dataloader_drop_last", "false", Status::host, "drop the last short batch"),
    count("vocabulary_size", "null", 1, kAnyCount, Status::host, "size of the vocabulary"),
    flag("use_data_before_expert_parallelism", "false", Status::host, "order of process groups"),

    section("activation_checkpointing", "recomputation, which the host's backward does"),
    flag("activation_checkpointing.partition_activations", "false", Status::host,
         "split activations over ranks"),
    flag("activation_checkpointing.cpu_checkpointing", "false", Status::host,
         "keep activations in host memory"),
    flag("activation_checkpointing.contiguous_memory_optimization", "false", Status::host,
         "activations side by side"),
    flag("activation_checkpointing.synchronize_checkpoint_boundary", "false", Status::host,
         "synchronise at boundaries"),
    flag("activation_checkpointing.profile", "false", Status::host, "time recomputation"),
    count("activation_checkpointing.number_checkpoints", "null", 0, kInt32, Status::host,
          "number of checkpoints"),

    section("checkpoint", "checkpoint files"),
    choice("checkpoint.tag_validation", "\"Warn\"", "Ignore|Warn|Fail", "", Status::host,
           "compare tags over ranks"),
    flag("checkpoint.load_universal", "false", Status::not_built, "load universal checkpoints",
         "leave it false"),
    flag("checkpoint.use_node_local_storage", "false", Status::host, "files on each node"),
    section("checkpoint.parallel_write", "who writes"),
    flag("checkpoint.parallel_write.pipeline_stage", "false", Status::host,
         "pipeline stages write side by side"),

    section("aio", "asynchronous file access for device nvme; a top-level section"),
    count("aio.block_size", "1048576", 1, kAnyCount, Status::hint, "bytes of a request"),
    count("aio.queue_depth", "8", 1, kInt32, Status::hint, "requests under way"),
    count("aio.intra_op_parallelism", "1", 1, kInt32, Status::hint, "threads of a request"),
    count("aio.thread_count", "1", 1, kInt32, Status::hint, "older form of intra_op_parallelism"),
    flag("aio.single_submit", "false", Status::hint, "submit one by one"),
    flag("aio.overlap_events", "true", Status::hint, "overlap submission and completion"),
    flag("aio.use_gds", "false", Status::not_built, "direct access from a device",
         "leave it false"),

    section("comms_logger", "log of collectives"),
    flag("comms_logger.enabled", "false", Status::host, "write it"),
    flag("comms_logger.verbose", "false", Status::host, "write it at once"),
    flag("comms_logger.prof_all", "true", Status::host, "all collectives"),
    flag("comms_logger.debug", "false", Status::host, "name the caller"),
    texts("comms_logger.prof_ops", "[]", Status::host, "these collectives only"),

    any("csv_monitor", "null", Status::host, "metrics as CSV",
        "the host writes otr_step_report where it wants"),
    any("tensorboard", "null", Status::host, "metrics for TensorBoard"),
    any("wandb", "null", Status::host, "metrics for Weights & Biases"),
    any("comet", "null", Status::host, "metrics for Comet"),
    any("monitor_config", "null", Status::host, "metrics, older form"),
    any("flops_profiler", "null", Status::host, "count of operations of the host's model"),
    any("timers", "null", Status::host, "timers of the host"),

    any("amp", "null", Status::refused, "NVIDIA Apex",
        "Apex mixed precision does not go with ZeRO; use the bf16 section, or leave amp out"),
    any("compile", "null", Status::not_built, "DeepCompile", kOut),
    any("autotuning", "null", Status::not_built, "search for a configuration", kOut),
    any("pipeline", "null", Status::not_built, "pipeline parallelism", "leave the section out"),
    any("tensor_parallel", "null", Status::not_built, "tensor parallelism",
        "leave the section out"),
    any("expert_parallel", "null", Status::not_built, "expert parallelism",
        "leave the section out"),
    any("elasticity", "null", Status::not_built, "world sizes that may change", kOut),
    any("data_efficiency", "null", Status::not_built, "data sampling and routing", kOut),
    any("curriculum_learning", "null", Status::not_built, "curriculum of the data", kOut),
    any("progressive_layer_drop", "null", Status::not_built, "dropped layers", kOut),
    any("eigenvalue", "null", Status::not_built, "eigenvalues of layers", kOut),
    any("quantize_training", "null", Status::not_built, "quantisation during training", kOut),
    any("weight_quantization", "null", Status::not_built, "quantised weights for inference", kOut),
    any("compression_training", "null", Status::not_built, "compression during training", kOut),
    any("sparse_attention", "null", Status::not_built, "block-sparse attention",
        "leave the section out"),
    any("hybrid_engine", "null", Status::not_built, "training and inference in one engine", kOut),
    any("nebula", "null", Status::not_built, "a checkpoint service", kOut),
    any("datastates_ckpt", "null", Status::not_built, "a checkpoint service", kOut),
};

}  // namespace outrigger::config::rows

# SPDX-License-Identifier: Apache-2.0
"""What DeepSpeed 0.19.8 has and does nothing here, or is refused, or is not there yet: the one list, from which errors take their
texts and docs/pytorch.md its table. What is neither here nor there is a fault of tests/bindings/torch/test_compat.py.

    python missing.py PATH/docs/pytorch.md     writes the table anew"""
import sys
from pathlib import Path
from typing import NamedTuple

NOTHING, REFUSED, NOT_YET = "does nothing, by design", "refused", "not yet"


class Row(NamedTuple):
    """names: below `place`; one that ends in * means all that begin so. why: what happens instead, and the way out."""
    kind: str
    place: str
    names: str
    why: str


ENGINE, ACCELERATOR = "engine", "accelerator"
_PARALLEL = "only data parallelism is built; give the data-parallel group as comm="
_OTHER = "leave it out, or keep DeepSpeed for it"

TABLE = (
    # ---- Does nothing ----
    Row(NOTHING, ENGINE, "allreduce_gradients empty_partition_cache collect_python_gc clip_fp32_gradients set_data_post_process_func",
        "gradients are summed while they come and clipped in step(), no copies of parameters are kept, data is the caller's"),
    Row(NOTHING, ENGINE, "no_sync coalesce_grad_reduction", "allowed at every stage; how often gradients are reduced does not change what they are"),
    Row(NOTHING, "deepspeed.zero", "register_external_parameter", "parameters are readable outside of their modules, too"),
    Row(NOTHING, "deepspeed.checkpointing", "configure reset set_num_layers partition_activations_in_checkpoint is_configured",
        "activation checkpointing is PyTorch's"),
    Row(NOTHING, "deepspeed.comm", "configure log_summary reset_log", "communication is not logged"),
    Row(NOTHING, "deepspeed.utils", "instrument_w_nvtx", "there is no NVTX on a CPU"),
    Row(NOTHING, ACCELERATOR, "synchronize set_device empty_cache range_push range_pop reset_* replay_graph pin_memory unpin_memory",
        "a CPU has no streams, caches or pinned memory; the system's peak of memory is not reset"),
    # ---- Refused: ours is otherwise by decision, or it cannot be ----
    Row(REFUSED, "deepspeed", "DeepSpeedConfig", "the configuration in effect is the library's: ask the engine, engine.effective(\"section\", \"key\")"),
    Row(REFUSED, "deepspeed", "DeepSpeedDataLoader", "initialize(training_data=…) and engine.deepspeed_io make a torch DataLoader"),
    Row(REFUSED, "deepspeed", "init_inference InferenceEngine DeepSpeedInferenceConfig default_inference_config replace_transformer_layer "
        "DeepSpeedTransformer* module_inject inference", "Outrigger trains; for inference use the module itself, or DeepSpeed"),
    Row(REFUSED, "deepspeed", "tp_model_init merge_tp_model_init_into_config record_tp_model_init_args set_autotp_mode PipelineModule PipelineEngine "
        "DualPipeV* pipe sequence", _PARALLEL),
    Row(REFUSED, "deepspeed", "DeepSpeedHybridEngine", "train with the engine, generate with zero.unwrap_model_for_generation(engine)"),
    Row(REFUSED, "deepspeed", "set_optimizer_flags resolve_per_head_muon_after_sharding",
        "the library's Muon takes its matrices by name: outrigger.muon.adam_parameters in the configuration"),
    Row(REFUSED, "deepspeed", "moe compression autotuning profiling monitor linear nvme io elasticity model_implementations",
        "not a part of ZeRO's step; " + _OTHER),
    Row(REFUSED, "deepspeed.zero", "TiledLinear TiledLinearReturnBias", "torch.nn.Linear is gathered whole; checkpoint it instead"),
    Row(REFUSED, "deepspeed.zero", "DeepSpeedZeRoOffload DeepSpeedTensorOverride ZeroParamType", "DeepSpeed's inside; the engine does it"),
    Row(REFUSED, "deepspeed.ops", "adagrad lion lamb", "name the rule in the configuration (\"type\": \"Adagrad\", \"Lion\", \"Lamb\"), or use "
        "outrigger.Optimizer with a Shard of your memory"),
    Row(REFUSED, "deepspeed.ops", "transformer sparse_attention op_builder aio fp_quantizer quantizer random_ltd", "kernels of DeepSpeed's; " + _OTHER),
    Row(REFUSED, "deepspeed.ops.adam", "ZenFlow*", "its states are split between devices; the library's Adam updates all of them"),
    Row(REFUSED, "deepspeed.utils", "initialize get_model_parallel_group get_tensor_model_parallel_group set_tensor_model_parallel_*", _PARALLEL),
    Row(REFUSED, "deepspeed.utils", "tensor_fragment fragment_address get_full_hp_* set_full_hp_* get_hp_fragment_mapping map_to_flat_opt_states "
        "link_hp_params lazy_init_hp_params_optimizer_state z3_leaf_parameter", "DeepSpeed's inside; safe_get_* and safe_set_* read and write all values"),
    Row(REFUSED, "deepspeed.utils", "get_numactl_cmd", "outrigger run binds its workers to cores"),
    Row(REFUSED, "deepspeed.utils", "DeprecatedException get_caller_func", "DeepSpeed's inside"),
    Row(REFUSED, "deepspeed.utils.groups", "initialize get_model_parallel_group get_tensor_model_parallel_group set_tensor_model_parallel_*", _PARALLEL),
    Row(REFUSED, "deepspeed.utils.groups", "DeprecatedException", "DeepSpeed's inside"),
    Row(REFUSED, "deepspeed.utils.logging", "LoggerFactory get_dist_msg print_configuration print_json_dist required_torch_version",
        "DeepSpeed's inside; logger is the logger outrigger.torch of Python's logging"),
    Row(REFUSED, "deepspeed.utils", "timer", "times come from time.perf_counter()"),
    Row(REFUSED, "deepspeed.utils.zero_to_fp32", "convert_*", "torch.save(get_fp32_state_dict_from_zero_checkpoint(folder), file)"),
    Row(REFUSED, "deepspeed.comm", "CCLBackend TorchBackend CommsLogger ProcessGroupWrapper init_deepspeed_backend set_backend timed_op mpi_discovery "
        "in_aml in_aws_sm in_dlts patch_* initialize_mesh_device enable_symm_mem_for_group get_caller_func get_debug_log_name "
        "get_default_args get_msg_size_from_args get_tensor_* get_comm_operation_count get_logged_comm_ops",
        "DeepSpeed's inside; deepspeed.comm is torch.distributed here"),
    Row(REFUSED, "deepspeed.checkpointing", "CheckpointFunction CudaRNGStatesTracker get_cuda_rng_tracker model_parallel_* gather_* get_* "
        "partition_activations restore_offloaded_activations merge_tensors extract_tensors detach_variable copy_to_device move_to_device "
        "is_activation_to_checkpoint see_memory_usage bwc_* Timers DeepSpeedConfig", "DeepSpeed's inside; checkpoint() and non_reentrant_checkpoint() are PyTorch's"),
    Row(REFUSED, "deepspeed.runtime.lr_schedules", "add_tuning_arguments parse_arguments get_config_from_args get_lr_from_config override_* "
        "get_torch_optimizer update_lr", "give the schedule's parameters in the configuration's \"scheduler\", or make the schedule yourself"),
    Row(REFUSED, "deepspeed.accelerator", "set_accelerator", "the CPU is the only accelerator"),
    Row(REFUSED, "deepspeed.runtime", "pipe sequence_parallel tensor_parallel domino hybrid_engine", _PARALLEL),
    Row(REFUSED, "deepspeed.runtime", "bf16_optimizer fp16 compiler data_pipeline swap_tensor superoffload zenflow", "DeepSpeed's inside; the engine does it"),
    Row(REFUSED, ENGINE, "set_train_batch_size set_train_micro_batch_size", "the accumulation of an engine is fixed; make another engine, or end windows "
        "yourself with set_gradient_accumulation_boundary"),
    Row(REFUSED, ENGINE, "allreduce_and_copy allreduce_bucket allreduce_no_retain buffered_allreduce_fallback sparse_* all_gather_scalar "
        "is_first_weights_partition_group", "DeepSpeed's inside; the library sums gradients"),
    Row(REFUSED, ENGINE, "get_pld_* random_ltd_* set_custom_curriculum_learning_schedule curriculum_* data_efficiency_* data_sampling_*",
        "the order of data and layers is the caller's"),
    Row(REFUSED, ENGINE, "flops_profiler_* autotuning_* get_wall_clock_timers print_forward_breakdown get_compile_time",
        "measure with torch.profiler; engine.report and engine.memory() say what the step did"),
    Row(REFUSED, ENGINE, "get_sequence_parallel_group tensor_parallel_config autotp_size uses_parallelization_pass_only compile_auto* "
        "get_autosp_backend get_autotp_backend load_moe_state_dict", _PARALLEL),
    Row(REFUSED, ENGINE, "get_deepcompile_backend get_deepspeed_compile_backend is_deepcompile_* register_compile_pass compile_zero_optimization_stage",
        "DeepCompile is not there; engine.compile() is torch.compile of the module"),
    Row(REFUSED, ENGINE, "zenflow_config super_offload swap_tensor_config aio_config cpuadam_cores_perc zero_nvme_offload_optimizer",
        "states are on the host or the device; outrigger.workers sets the threads"),
    Row(REFUSED, ENGINE, "get_optimizer_configuration optimizer_legacy_fusion dynamic_loss_scale_args initial_dynamic_scale",
        "ask engine.effective(\"fp16\", \"initial_scale_power\") and its neighbours"),
    Row(REFUSED, ENGINE, "checkpoint_* load_universal_checkpoint use_node_local_storage zero_elastic_checkpoint zero_load_from_fp32_weights",
        "they rule DeepSpeed's checkpoints"),
    Row(REFUSED, ACCELERATOR, "build_extension create_op_builder get_op_builder op_builder_dir set_compile_backend register_host_memory "
        "unregister_host_memory supports_nvtx_domain", "there are no operators to build; the library chooses its kernels"),
)


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def row_of(place: str, name: str) -> Row | None:
    for row in TABLE:
        if row.place == place and any(_matches(each, name) for each in row.names.split()):
            return row
    return None


def reason(path: str) -> str:
    """Why nothing stands for a dotted name, with the way out; "" where the table does not say."""
    while "." in path:
        place, _, name = path.rpartition(".")
        row = row_of(place, name)
        if row is not None and row.kind is not NOTHING:
            return f"{row.kind}: {row.why}"
        path = place
    return ""


# ---- The table in the documentation ----

BEGIN, END = "<!-- of torch/missing.py: begin -->", "<!-- of torch/missing.py: end -->"


def markdown() -> str:
    lines = ["| | where | names | what happens, and the way out |", "|---|---|---|---|"]
    for kind in (NOTHING, REFUSED, NOT_YET):
        for row in TABLE:
            if row.kind == kind:
                lines.append(f"| {row.kind} | `{row.place}` | {', '.join(f'`{name}`' for name in row.names.split())} | {row.why} |")
    return "\n".join(lines)


def shown_in(text: str) -> str:
    """The documentation's text with the table of today."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(shown_in(page.read_text(encoding="utf-8")), encoding="utf-8")

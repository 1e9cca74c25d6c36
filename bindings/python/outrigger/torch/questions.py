# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's questions to an engine about its configuration, each a method of DeepSpeed's name."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .config import DTYPES

if TYPE_CHECKING:
    from .config import Effective, Settings


T = TypeVar("T")


def _ask(kind: Callable[[Any], T], *path: str) -> Callable[[Any], T]:
    def ask(self: Any) -> T:
        return kind(self.effective(*path))

    ask.__doc__ = f"{'.'.join(path)} of the configuration in effect."
    return ask


def _flag(*path: str) -> Callable[[Any], bool]:
    return _ask(bool, *path)


def _zero_flag(key: str) -> Callable[[Any], bool]:
    return _ask(bool, "zero_optimization", key)


def _zero_count(key: str) -> Callable[[Any], int]:
    return _ask(int, "zero_optimization", key)


class Questions:
    """Of a configuration: what is in effect, or, of a section with params, what was given."""

    effective: Effective
    settings: Settings

    gradient_accumulation_steps = _ask(int, "gradient_accumulation_steps")
    gradient_clipping = _ask(float, "gradient_clipping")
    gradient_predivide_factor = _ask(float, "gradient_predivide_factor")
    wall_clock_breakdown = _flag("wall_clock_breakdown")
    memory_breakdown = _flag("memory_breakdown")
    dump_state = _flag("dump_state")
    dataloader_drop_last = _flag("dataloader_drop_last")
    fp16_enabled = _flag("fp16", "enabled")
    fp16_auto_cast = _flag("fp16", "auto_cast")
    fp16_master_weights_and_gradients = _flag("fp16", "fp16_master_weights_and_grads")
    bfloat16_enabled = _flag("bf16", "enabled")
    bf16_master_weights_and_gradients = _flag("bf16", "bf16_master_weights_and_grads")
    bf16_optimizer_states = _flag("bf16", "bf16_optimizer_states")
    torch_autocast_enabled = _flag("torch_autocast", "enabled")
    zero_allow_untested_optimizer = _flag("zero_allow_untested_optimizer")
    zero_force_ds_cpu_optimizer = _flag("zero_force_ds_cpu_optimizer")
    zero_optimization_stage = _zero_count("stage")
    zero_allgather_bucket_size = _zero_count("allgather_bucket_size")
    zero_allgather_partitions = _zero_flag("allgather_partitions")
    zero_allgather_sequential = _zero_flag("stage3_allgather_sequential")
    zero_contiguous_gradients = _zero_flag("contiguous_gradients")
    zero_gather_16bit_weights_on_model_save = _zero_flag("stage3_gather_16bit_weights_on_model_save")
    zero_hpz_partition_size = _zero_count("zero_hpz_partition_size")
    zero_ignore_unused_parameters = _zero_flag("ignore_unused_parameters")
    zero_legacy_stage1 = _zero_flag("legacy_stage1")
    zero_log_trace_cache_warnings = _zero_flag("log_trace_cache_warnings")
    zero_max_live_parameters = _zero_count("stage3_max_live_parameters")
    zero_max_reuse_distance = _zero_count("stage3_max_reuse_distance")
    zero_model_persistence_threshold = _zero_count("stage3_model_persistence_threshold")
    zero_module_granularity_threshold = _zero_count("stage3_module_granularity_threshold")
    zero_multi_rank_bucket_allreduce = _zero_flag("use_multi_rank_bucket_allreduce")
    zero_param_persistence_threshold = _zero_count("stage3_param_persistence_threshold")
    zero_prefetch_bucket_size = _zero_count("stage3_prefetch_bucket_size")
    zero_quantized_gradients = _zero_flag("zero_quantized_gradients")
    zero_quantized_nontrainable_weights = _zero_flag("zero_quantized_nontrainable_weights")
    zero_quantized_weights = _zero_flag("zero_quantized_weights")
    zero_reduce_bucket_size = _zero_count("reduce_bucket_size")
    zero_reduce_scatter = _zero_flag("reduce_scatter")
    zero_round_robin_gradients = _zero_flag("round_robin_gradients")
    zero_save_muon_momentum_buffer_in_memory = _zero_flag("save_muon_momentum_buffer_in_memory")
    zero_sub_group_size = _zero_count("sub_group_size")
    is_sanity_checks_enabled = _zero_flag("enable_sanity_checks")

    def train_batch_size(self) -> int | None:
        size: int | None = self.effective("train_batch_size")
        return size

    def train_micro_batch_size_per_gpu(self) -> int | None:
        size: int | None = self.effective("train_micro_batch_size_per_gpu")
        return size

    def steps_per_print(self) -> int | None:
        steps: int | None = self.effective("steps_per_print")
        return steps

    def zero_overlap_comm(self) -> bool | None:
        overlaps: bool | None = self.effective("zero_optimization", "overlap_comm")
        return overlaps

    def torch_autocast_lower_precision_safe_modules(self) -> list[str] | None:
        names: list[str] | None = self.effective("torch_autocast", "lower_precision_safe_modules")
        return names

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as it was given."""
        return self.settings.given

    def zero_optimization(self) -> bool:
        return bool(self.zero_optimization_stage() > 0)

    def zero_optimization_partition_gradients(self) -> bool:
        return bool(self.zero_optimization_stage() >= 2)

    def zero_optimization_partition_weights(self) -> bool:
        return bool(self.zero_optimization_stage() >= 3)

    def zero_cpu_offload(self) -> bool:
        return bool(self.effective("zero_optimization", "offload_optimizer", "device") == "cpu")

    zero_use_cpu_optimizer = zero_cpu_offload

    def zero_partial_offload(self) -> float:
        return float(self.effective("zero_optimization", "offload_optimizer", "ratio"))

    def zero_offload_optimizer(self) -> dict[str, Any] | None:
        return self._section("offload_optimizer")

    def zero_offload_param(self) -> dict[str, Any] | None:
        return self._section("offload_param")

    def _section(self, name: str) -> dict[str, Any] | None:
        section = self.effective.section("zero_optimization", name)
        return None if section["device"] == "none" else section

    def zero_compute_grad_norm(self) -> bool:
        return True

    def zero_parameter_alignment(self) -> None:
        """The library aligns for itself."""

    def managed_gradient_accumulation(self) -> bool:
        return bool(self.settings.managed)

    def postscale_gradients(self) -> bool:
        return not self.effective("prescale_gradients")

    def torch_autocast_dtype(self) -> torch.dtype | None:
        return self.settings.autocast

    def dynamic_loss_scale(self) -> bool:
        return bool(self.fp16_enabled() and self.effective("fp16", "loss_scale") == 0)

    @property
    def communication_data_type(self) -> torch.dtype:
        name = self.effective("communication_data_type")
        return self.effective.compute_dtype if name is None else DTYPES[name]

    def get_data_types(self) -> tuple[torch.dtype, torch.dtype]:
        """Of the model and of its gradients."""
        name = self.effective("data_types", "grad_accum_dtype")
        return self.effective.compute_dtype, self.effective.compute_dtype if name is None else DTYPES[name]

    def optimizer_name(self) -> str:
        return str(self.effective("optimizer", "type"))

    def optimizer_params(self) -> dict[str, Any] | None:
        return self._params("optimizer")

    def scheduler_name(self) -> str | None:
        return self.settings.scheduler.get("type")

    def scheduler_params(self) -> dict[str, Any] | None:
        return self._params("scheduler")

    def _params(self, section: str) -> dict[str, Any] | None:
        return (self.settings.given.get(section) or {}).get("params")

    def log_level(self) -> str | None:
        return self.settings.given.get("log_level")

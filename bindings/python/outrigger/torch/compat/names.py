# SPDX-License-Identifier: Apache-2.0
"""What stands for which of DeepSpeed's names. ../missing.py has those that nothing stands for."""
import enum
import types
from typing import Any

import torch
import torch.utils.checkpoint

from .. import lr_schedules, utils, zero, zero_to_fp32
from ..adam import CPUAdam
from ..config import ConfigError, add_config_arguments
from ..distributed import init_distributed
from ..engine import Engine
from ..initialize import initialize
from ..moved import OffloadDeviceEnum, OffloadStateTypeEnum
from ..optimizer import ZeroOptimizer
from ..owned import ZeroParamStatus
from ... import version
from . import accelerator, tools
from .accelerator import get_accelerator
from .comm import ALL_GROUPS, COMM, GROUPS

DEEPSPEED = "0.19.8"
VERSION = f"{DEEPSPEED}+outrigger{version()}"


class FusedAdam(CPUAdam):
    """DeepSpeed's device optimizer; here the CPU's kernels are meant by it."""

    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, adam_w_mode=True, weight_decay=0.0,
                 amsgrad=False, set_grad_none=True):
        super().__init__(params, lr, bias_correction, betas, eps, weight_decay, amsgrad, adam_w_mode)


class ZeroStageEnum(enum.IntEnum):
    disabled, optimizer_states, gradients, weights = range(4)


def configure(*arguments, **options):
    """Activation checkpointing is PyTorch's here: nothing to configure."""


def checkpoint(function, *arguments, **named):
    """PyTorch's, of the kind that DeepSpeed's is. Named tensors take part in autograd, too."""
    def run(*values):
        return function(*values[:len(arguments)], **dict(zip(named, values[len(arguments):])))

    return torch.utils.checkpoint.checkpoint(run, *arguments, *named.values(), use_reentrant=True)


def non_reentrant_checkpoint(function, *arguments):
    return torch.utils.checkpoint.checkpoint(function, *arguments, use_reentrant=False)


def _of(module, *names):
    return {name: getattr(module, name) for name in names}


_ADAM = {"DeepSpeedCPUAdam": CPUAdam, "FusedAdam": FusedAdam}
_ZERO = {"Init": zero.Init, "GatheredParameters": zero.GatheredParameters,
         "ZeroParamStatus": ZeroParamStatus, **_of(tools, "register_external_parameter", "unwrap_model_for_generation")}
_PARTITION = {**_ZERO, **_of(tools, "is_zero_param", "zero_wrapper_for_fp_tensor_constructor"), "_orig_torch_arange": torch.arange,
              "get_accelerator": get_accelerator}
_UTILS = {name: value for name, value in vars(utils).items()
          if isinstance(value, (type, types.FunctionType)) and value.__module__ == utils.__name__ and not name.startswith("_")}
_SCHEDULES = {**{name: lr_schedules.SCHEDULES[name] for name in lr_schedules.VALID_LR_SCHEDULES},
              "VALID_LR_SCHEDULES": lr_schedules.VALID_LR_SCHEDULES}
_CHECKPOINTING = {"checkpoint": checkpoint, "non_reentrant_checkpoint": non_reentrant_checkpoint, "configure": configure, "reset": configure,
                  "set_num_layers": configure, "partition_activations_in_checkpoint": configure, "is_configured": lambda: True}
_LOGGING = _of(tools, "logger", "log_dist", "log_dist_once", "print_dist", "get_log_level_from_string", "set_log_level_from_string",
               "get_current_level", "should_log_le")
_INIT = {"version": DEEPSPEED, "__version__": VERSION, "git_hash": None, "git_branch": None}
_MAJOR, _MINOR, _PATCH = map(int, DEEPSPEED.split("."))

MODULES: dict[str, dict[str, Any]] = {
    "deepspeed": {**_INIT, "__version_major__": _MAJOR, "__version_minor__": _MINOR, "__version_patch__": _PATCH, "HAS_TRITON": False,
                  "initialize": initialize, "init_distributed": init_distributed, "add_config_arguments": add_config_arguments,
                  "DeepSpeedEngine": Engine, "DeepSpeedOptimizer": ZeroOptimizer, "get_accelerator": get_accelerator, "dist": None,
                  "DeepSpeedConfigError": ConfigError, **_of(tools, "OnDevice", "log_dist", "logger", "load_ds_config")},
    "deepspeed.accelerator": {**_of(accelerator, "DeepSpeedAccelerator", "get_accelerator"),
                              **_of(tools, "is_current_accelerator_supported")},
    "deepspeed.checkpoint": {},
    "deepspeed.checkpoint.utils": _of(tools, "clone_tensors_for_torch_save"),
    "deepspeed.checkpointing": _CHECKPOINTING,
    "deepspeed.comm": {**COMM, "get_accelerator": get_accelerator},
    "deepspeed.comm.comm": COMM,
    "deepspeed.git_version_info": _INIT,
    "deepspeed.launcher": {},
    "deepspeed.launcher.runner": {"DEEPSPEED_ENVIRONMENT_NAME": ".deepspeed_env"},  # accelerate launch imports it
    "deepspeed.ops": {},
    "deepspeed.ops.adam": _ADAM,
    "deepspeed.runtime": {},
    "deepspeed.runtime.activation_checkpointing": {},
    "deepspeed.runtime.activation_checkpointing.checkpointing": _CHECKPOINTING,
    "deepspeed.runtime.base_optimizer": {"DeepSpeedOptimizer": ZeroOptimizer, "ZeROOptimizer": ZeroOptimizer},
    "deepspeed.runtime.config": {"ZeroStageEnum": ZeroStageEnum, "DeepSpeedConfigError": ConfigError},
    "deepspeed.runtime.dataloader": {"RepeatingLoader": utils.RepeatingLoader},
    "deepspeed.runtime.engine": {"DeepSpeedEngine": Engine},
    "deepspeed.runtime.lr_schedules": _SCHEDULES,
    "deepspeed.runtime.utils": {"clip_grad_norm_": torch.nn.utils.clip_grad_norm_,
                                **_of(tools, "see_memory_usage", "set_random_seed", "noop_context", "ensure_directory_exists")},
    "deepspeed.runtime.zero": _ZERO,
    "deepspeed.runtime.zero.config": {"ZeroStageEnum": ZeroStageEnum},
    "deepspeed.runtime.zero.offload_config": {"OffloadDeviceEnum": OffloadDeviceEnum, "OffloadStateTypeEnum": OffloadStateTypeEnum},
    "deepspeed.runtime.zero.partition_parameters": _PARTITION,
    "deepspeed.runtime.zero.stage3": _of(tools, "unwrap_model_for_generation"),
    "deepspeed.utils": {**_UTILS, **_LOGGING, **GROUPS, "get_accelerator": get_accelerator,
                        **_of(tools, "OnDevice", "instrument_w_nvtx", "recursive_getattr", "recursive_setattr",
                              "set_z3_leaf_modules_by_name", "set_z3_leaf_modules_by_suffix")},
    "deepspeed.utils.groups": {**ALL_GROUPS, "get_accelerator": get_accelerator, **_of(tools, "log_dist")},
    "deepspeed.utils.logging": _LOGGING,
    "deepspeed.utils.zero_to_fp32": _of(zero_to_fp32, "get_fp32_state_dict_from_zero_checkpoint", "load_state_dict_from_zero_checkpoint"),
    "deepspeed.zero": _ZERO,
}

# SPDX-License-Identifier: Apache-2.0
"""What stands for which of DeepSpeed's names."""
import logging
import types
from typing import Any

import torch.distributed
import torch.utils.checkpoint

from ... import version
from .. import lr_schedules, utils, zero
from ..adam import CPUAdam
from ..arguments import add_config_arguments
from ..distributed import init_distributed
from ..engine import Engine
from ..initialize import initialize
from .accelerator import get_accelerator

VERSION = version()
logger = logging.getLogger("outrigger.torch")


class FusedAdam(CPUAdam):
    """DeepSpeed's device optimizer; here the CPU's kernels are meant by it."""

    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, adam_w_mode=True, weight_decay=0.0,
                 amsgrad=False, set_grad_none=True):
        super().__init__(params, lr, bias_correction, betas, eps, weight_decay, amsgrad, adam_w_mode)


def log_dist(message, ranks=None, level=logging.INFO):
    """Logs on these ranks; None or -1 among them: on all."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    if not ranks or -1 in ranks or rank in ranks:
        logger.log(level, "[rank %d] %s", rank, message)


def see_memory_usage(message, force=False):
    """What the process holds, as the system counts it."""
    resident = get_accelerator().memory_allocated()
    logger.log(logging.INFO if force else logging.DEBUG, "%s: %.2f GB resident", message, resident / 2**30)


def register_external_parameter(module, parameter):
    """Parameters are readable outside of their modules, too: nothing to do."""


def configure(*arguments, **options):
    """Activation checkpointing is PyTorch's here: nothing to configure."""


_COMM = ("ReduceOp", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "barrier", "broadcast",
         "broadcast_object_list", "destroy_process_group", "gather", "get_rank", "get_world_size", "is_available", "is_initialized",
         "isend", "irecv", "new_group", "recv", "reduce", "reduce_scatter_tensor", "scatter", "send")
_ADAM = {"DeepSpeedCPUAdam": CPUAdam, "FusedAdam": FusedAdam}
_ZERO = {"Init": zero.Init, "GatheredParameters": zero.GatheredParameters, "register_external_parameter": register_external_parameter}
_UTILS = {name: value for name, value in vars(utils).items()
          if isinstance(value, (type, types.FunctionType)) and value.__module__ == utils.__name__ and not name.startswith("_")}
_SCHEDULES = dict(lr_schedules.SCHEDULES)
_CHECKPOINTING = {"checkpoint": torch.utils.checkpoint.checkpoint, "configure": configure, "is_configured": lambda: True}
_LOGGING = {"logger": logger, "log_dist": log_dist}

MODULES: dict[str, dict[str, Any]] = {
    "deepspeed": {"__version__": f"0.19.8+outrigger{VERSION}", "initialize": initialize, "init_distributed": init_distributed,
                  "add_config_arguments": add_config_arguments, "DeepSpeedEngine": Engine, "get_accelerator": get_accelerator},
    "deepspeed.accelerator": {"get_accelerator": get_accelerator},
    "deepspeed.checkpointing": _CHECKPOINTING,
    "deepspeed.comm": {"init_distributed": init_distributed,
                       "get_local_rank": lambda: get_accelerator().local_rank(),
                       **{name: getattr(torch.distributed, name) for name in _COMM}},
    "deepspeed.ops": {},
    "deepspeed.ops.adam": _ADAM,
    "deepspeed.runtime": {},
    "deepspeed.runtime.activation_checkpointing": {},
    "deepspeed.runtime.activation_checkpointing.checkpointing": _CHECKPOINTING,
    "deepspeed.runtime.dataloader": {"RepeatingLoader": utils.RepeatingLoader},
    "deepspeed.runtime.engine": {"DeepSpeedEngine": Engine},
    "deepspeed.runtime.lr_schedules": _SCHEDULES,
    "deepspeed.runtime.utils": {"see_memory_usage": see_memory_usage},
    "deepspeed.runtime.zero": _ZERO,
    "deepspeed.runtime.zero.partition_parameters": _ZERO,
    "deepspeed.utils": {**_UTILS, **_LOGGING},
    "deepspeed.utils.logging": _LOGGING,
    "deepspeed.zero": _ZERO,
}

# SPDX-License-Identifier: Apache-2.0
"""Outrigger under PyTorch, with DeepSpeed's names: `engine, optimizer, _, _ = outrigger.torch.initialize(model=m, config=c)`."""
from . import lr_schedules, utils, zero, zero_to_fp32
from .adam import CPUAdam
from .caching_allocator import share_caching_allocator
from .config import ConfigError, add_config_arguments
from .distributed import init_distributed
from .engine import Engine, step_many
from .initialize import initialize
from .offloaded_adamw import OffloadedAdamW
from .optimizer import ZeroOptimizer
from .ulysses import UlyssesAttention

__all__ = ["CPUAdam", "ConfigError", "Engine", "OffloadedAdamW", "UlyssesAttention", "ZeroOptimizer", "add_config_arguments", "init_distributed", "initialize",
           "lr_schedules", "share_caching_allocator", "step_many", "utils", "zero", "zero_to_fp32"]

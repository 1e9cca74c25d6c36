# SPDX-License-Identifier: Apache-2.0
"""Outrigger for Python: ZeRO sharding and low-precision optimizer states for any array library.

A thin layer over outrigger.lowlevel (SWIG): objects with methods, keyword options, NumPy views. Arrays go in
without a copy through the buffer protocol or DLPack; the arrays that come out are views of Outrigger's memory and keep the
object they belong to alive. bfloat16 is ml_dtypes.bfloat16 where that package is installed, else uint16.

outrigger.numpy, outrigger.jax and outrigger.torch are engines for arrays, pytrees and modules; each imports its framework,
this package none: NumPy comes with the first array.
"""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import lowlevel
from .checkpoint import Checkpoint
from .checkpoint_writer import CheckpointWriter, import_weights
from .comm import Channel, Comm
from .context import Context
from .engine import Engine, step_many
from .handle import text_of
from .lowlevel import OutriggerError, version
from .message import Message
from .optimizer import Optimizer, Shard
from .passes import Pass
from .snapshot import Snapshot

if TYPE_CHECKING:
    from .handle import Config

if lowlevel.abi_version() != lowlevel.ABI_VERSION:
    raise ImportError(f"this module was built for the binary interface {lowlevel.ABI_VERSION} of Outrigger; the library "
                      f"that was loaded ({lowlevel.version()}) has {lowlevel.abi_version()}. Rebuild the module")

__all__ = ["Channel", "Checkpoint", "CheckpointWriter", "Comm", "Context", "Engine", "Message", "Optimizer", "OutriggerError", "Pass", "Shard", "Snapshot", "build_info", "config_check", "import_weights",
           "lowlevel", "machine_info", "step_many", "version"]


def build_info() -> dict[str, Any]:
    """Version, compiler, instruction sets found and used, communicators."""
    info: dict[str, Any] = json.loads(lowlevel.build_info())
    return info


def machine_info() -> dict[str, Any]:
    """What this machine and this process offer: cores, caches, memory, limits, instruction sets. A value that cannot be
    read is None, and "<name>_reason" beside it says why."""
    info: dict[str, Any] = json.loads(lowlevel.machine_info())
    return info


def config_check(config: Config, world_size: int = 1) -> dict[str, Any]:
    """The effective configuration for a world size, or an OutriggerError that says what is wrong."""
    effective: dict[str, Any] = json.loads(lowlevel.config_check(text_of(config), world_size))
    return effective

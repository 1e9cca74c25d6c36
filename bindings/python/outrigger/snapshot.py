# SPDX-License-Identifier: Apache-2.0
"""Snapshot: a moment of a training, in memory."""
from __future__ import annotations

from typing import TYPE_CHECKING

from . import lowlevel
from .handle import Handle

if TYPE_CHECKING:
    from collections.abc import Mapping


class Snapshot(Handle[lowlevel.Snapshot]):
    """Values, progress and parts of a moment: empty until Engine.snapshot fills it or Engine.restore finds this rank's in another
    process. It outlives engines and communicators. Local."""

    def __init__(self) -> None:
        super().__init__(lowlevel.snapshot_create())

    @property
    def info(self) -> lowlevel.SnapshotInfo:
        """rank (-1: it is empty), copies of ranks, world_size, micro_steps of the training, bytes of memory."""
        return lowlevel.snapshot_get_info(self.handle)

    def part(self, name: str) -> bytes:
        """What this rank's host gave along. E_NOT_FOUND: no such name; E_STATE: the snapshot is empty."""
        return lowlevel.snapshot_part(self.handle, name)


def snapshot_options(parts: Mapping[str, bytes] | None, replicas: int) -> lowlevel.SnapshotOptions:
    """For outrigger.lowlevel.engine_snapshot."""
    options = lowlevel.SnapshotOptions()
    options.replicas = replicas
    for name, data in (parts or {}).items():
        options.add_part(name, data)
    return options

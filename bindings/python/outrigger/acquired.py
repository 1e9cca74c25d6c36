# SPDX-License-Identifier: Apache-2.0
"""Acquired: parameters that the host may read for a while."""
from __future__ import annotations

from typing import TYPE_CHECKING

from . import lowlevel
from .arrays import view_of
from .handle import Handle, options_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from .arrays import Array


def acquire_info(float32: bool) -> lowlevel.CallInfo | None:
    return options_of(lowlevel.CallInfo, {"flags": lowlevel.ACQUIRE_FLOAT32} if float32 else {})


class Acquired:
    """What Engine.acquire returns: arrays inside of a with block."""

    def __init__(self, engine: Handle[lowlevel.Engine], ids: Iterable[int], float32: bool) -> None:
        self._engine, self._ids, self._info = engine, list(ids), acquire_info(float32)

    def __enter__(self) -> list[Array]:
        return [view_of(view) for view in lowlevel.engine_acquire(self._engine.handle, self._ids, self._info)]

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        lowlevel.engine_release(self._engine.handle, self._ids, self._info)

# SPDX-License-Identifier: Apache-2.0
"""A parameter's gradient on its way to the host: during backward where there is room for it, else during the step."""
from __future__ import annotations

import threading
from typing import Any

import torch

from .offload_copies import Copies
from .offload_tensors import fingerprint, flat_like, is_dtensor, local_of


class Room:
    """Memory of the host for gradients, at most so many bytes (None: as many as there are). Any thread."""

    def __init__(self, limit: int | None) -> None:
        self._limit, self._lock = limit, threading.Lock()
        self.used = 0

    def take(self, copies: Copies, count: int, dtype: torch.dtype) -> torch.Tensor | None:
        size = count * dtype.itemsize
        with self._lock:
            if self._limit is not None and self.used + size > self._limit:
                return None
            self.used += size
        return copies.memory(count, dtype)

    def give_back(self, memory: torch.Tensor) -> None:
        with self._lock:
            self.used -= memory.numel() * memory.element_size()


class Staging:
    """Two areas that gradients without room of their own use in turn, while one is read the other is written."""

    def __init__(self) -> None:
        self._areas: list[torch.Tensor | None] = [None, None]
        self._turn, self._used = 0, 0

    def turn(self, size: int, copies: Copies) -> None:
        """The other area, of so many bytes."""
        self._turn, self._used = 1 - self._turn, 0
        area = self._areas[self._turn]
        if size and (area is None or area.numel() < size):
            self._areas[self._turn] = None  # before the larger one is there
            self._areas[self._turn] = copies.memory(size, torch.uint8)

    def take(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        area = self._areas[self._turn]
        assert area is not None
        part = area[self._used:self._used + count * dtype.itemsize].view(dtype)
        self._used += staged_bytes(count, dtype)
        return part

    @property
    def bytes(self) -> int:
        return sum(area.numel() for area in self._areas if area is not None)


def staged_bytes(count: int, dtype: torch.dtype) -> int:
    """Each begins at a cache line."""
    return -(-count * dtype.itemsize // 64) * 64


class Gradient:
    """Of one parameter."""

    def __init__(self, parameter: torch.Tensor, copies: Copies | None, room: Room) -> None:
        self._parameter, self._copies, self._room = parameter, copies, room
        self._memory: torch.Tensor | None = None
        self._begun: tuple[Any, torch.Tensor] | None = None  # a copy, and of what
        self._staged: Any = None
        self.host: torch.Tensor | None = None  # for the library, once ready

    def local(self) -> torch.Tensor:
        """The gradient's elements on this rank, in the order of the parameter's."""
        grad, parameter = self._parameter.grad, self._parameter
        assert grad is not None
        if is_dtensor(parameter) and (not is_dtensor(grad) or grad.placements != parameter.placements):  # type: ignore[attr-defined]
            raise ValueError(f"a gradient is {_placements(grad)}, its parameter {_placements(parameter)}: they must be alike; use "
                             "grad.redistribute(placements=parameter.placements)")
        return flat_like(local_of(grad), local_of(parameter))

    def bring(self) -> None:
        """During backward: begins the copy, if there is room."""
        assert self._copies is not None
        values = self.local()
        memory = self._memory
        if memory is None or memory.dtype != values.dtype:
            if memory is not None:
                self._room.give_back(memory)
            self._memory = memory = self._room.take(self._copies, values.numel(), values.dtype)
        if memory is not None:
            self._begun = self._copies.down(values, memory), fingerprint(values)

    def brought(self) -> torch.Tensor | None:
        """The fingerprint of what the copy has, if there is one."""
        return None if self._begun is None else self._begun[1]

    def now(self) -> torch.Tensor:
        return fingerprint(self.local())

    def drop(self) -> None:
        """What was brought is old: it is brought again."""
        self._begun = None

    def staged(self) -> int:
        """How many bytes of staging it needs."""
        if self._copies is None or self._begun is not None:
            return 0
        values = self.local()
        if self._memory is not None and self._memory.dtype == values.dtype:
            return 0
        return staged_bytes(values.numel(), values.dtype)

    def request(self, staging: Staging) -> None:
        """Begins what bring has not."""
        if self._copies is None:
            self.host = self.local()
            return
        if self._begun is None:
            values = self.local()
            if self._memory is not None and self._memory.dtype != values.dtype:
                self._room.give_back(self._memory)
                self._memory = None
            if self._memory is None:
                self.host = staging.take(values.numel(), values.dtype)
                self._staged = self._copies.down(values, self.host)
                return
            self._begun = self._copies.down(values, self._memory), fingerprint(values)
        self.host = self._memory

    def wait(self) -> None:
        if self._copies is not None:
            self._copies.wait(self._staged if self._begun is None else self._begun[0])

    def done(self) -> None:
        """The step has read it."""
        self.host = self._staged = self._begun = None


def _placements(tensor: torch.Tensor) -> str:
    return f"placed {tuple(tensor.placements)}" if is_dtensor(tensor) else "a plain tensor"  # type: ignore[attr-defined]

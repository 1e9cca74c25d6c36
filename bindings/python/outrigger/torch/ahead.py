# SPDX-License-Identifier: Apache-2.0
"""Parameters in slices are fetched before they are needed: in the order in which the last pass needed them."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from .. import lowlevel

if TYPE_CHECKING:
    from .devices import Device


class Ahead:
    """budget: elements that may be fetched and not used yet. is_live: whether a parameter is whole now. is_alone: no other rank takes
    part. What is fetched depends on the order of this rank's own uses only, so it is the same on all ranks that compute alike."""

    def __init__(self, handle: lowlevel.Engine, ids: dict[torch.Tensor, int], budget: int, is_live: Callable[[torch.Tensor], bool],
                 device: Device, is_alone: bool) -> None:
        self._handle, self._ids, self._budget, self._is_live, self._device = handle, ids, budget, is_live, device
        self._is_alone = is_alone
        self._order: list[torch.Tensor] = []  # of this pass
        self._plan: list[torch.Tensor] = []  # of the last one
        self._forget()

    def _forget(self) -> None:
        self._used = self._next = self._elements = 0  # places in the plan; elements between them
        self._coming_up: set[torch.Tensor] = set()  # these

    def gathered(self, parameter: torch.Tensor) -> None:
        """A pass has gathered it."""
        self._order.append(parameter)
        if self._used >= len(self._plan) or self._plan[self._used] is not parameter:
            self._drop()  # this pass goes another way
            self._plan = []
            return
        self._used += 1
        if self._next < self._used:
            self._next = self._used
        else:
            self._elements -= parameter.numel()
            self._coming_up.remove(parameter)
        self._fetch(self._coming())

    def _coming(self) -> Iterable[torch.Tensor]:
        while self._next < len(self._plan):
            parameter = self._plan[self._next]
            # One that is needed twice is given back in between.
            if self._is_live(parameter) or parameter in self._coming_up:
                return
            if self._elements + parameter.numel() > self._budget:
                return
            self._coming_up.add(parameter)
            self._elements += parameter.numel()
            self._next += 1
            yield parameter

    def _fetch(self, parameters: Iterable[torch.Tensor]) -> None:
        identities = [self._ids[each] for each in parameters]
        if identities:
            lowlevel.engine_prefetch(self._handle, identities, self._device.info())

    def _drop(self) -> None:
        """What was fetched and is not used after all. Collective where there is any. What this rank fetched alone, the library drops
        when there is no room."""
        unused = sorted(self._ids[each] for each in self._coming_up if not self._is_live(each))
        if unused and not self._is_alone:
            lowlevel.engine_acquire(self._handle, unused, self._device.info())
            lowlevel.engine_release(self._handle, unused, self._device.info())
        self._forget()

    def pass_closed(self) -> None:
        self._drop()
        if self._order:  # not one that only ends a micro-batch
            self._plan, self._order = self._order, []

# SPDX-License-Identifier: Apache-2.0
"""What the learning-rate schedules of lr_schedules.py are made of."""
from __future__ import annotations

from typing import TypeAlias

import torch

# One value, or one for each parameter group.
Rates: TypeAlias = float | list[float]


class Schedule:
    """Sets "lr" of the optimizer's groups for a number of applied steps. Its first step() is number 0."""

    def __init__(self, optimizer: torch.optim.Optimizer, last_batch_iteration: int) -> None:
        self.optimizer = optimizer
        self.last_batch_iteration = last_batch_iteration
        self._last_lr: list[float] | None = None

    def _start(self, rates: list[float] | None = None) -> None:
        if self.last_batch_iteration == -1:
            self._set(self.get_lr() if rates is None else rates)

    def _set(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)  # others hold it
            else:
                group["lr"] = rate
        self._last_lr = list(rates)

    def _each(self, value: Rates, name: str) -> list[float]:
        """One value for each group."""
        groups = len(self.optimizer.param_groups)
        if not isinstance(value, (list, tuple)):
            return [value] * groups
        if len(value) != groups:
            raise ValueError(f"{name} has {len(value)} values for {groups} parameter groups; give one value, or one for each")
        return list(value)

    def get_last_lr(self) -> list[float]:
        """One for each group. RuntimeError before the first step."""
        if self._last_lr is None:
            raise RuntimeError("the schedule has not set a learning rate yet: call step() first")
        return self._last_lr

    def get_lr(self) -> list[float]:
        raise NotImplementedError

    def step(self, last_batch_iteration: int | None = None) -> None:
        self.last_batch_iteration = self.last_batch_iteration + 1 if last_batch_iteration is None else last_batch_iteration
        self._set(self.get_lr())

    def state_dict(self) -> dict[str, int]:
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.last_batch_iteration = state["last_batch_iteration"]


def rates_of(optimizer: torch.optim.Optimizer) -> list[float]:
    """Numbers: a tensor changes with each step."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def share_of(value: float, name: str) -> float:
    if isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"{name} = {value!r} is not legal; legal: a number from 0 to 1")
    return value


def positive(value: int, name: str, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} = {value!r} is not legal; legal: an integer of at least {least}")
    return value

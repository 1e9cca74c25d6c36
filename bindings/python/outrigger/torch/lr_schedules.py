# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's learning-rate schedules, by its names, parameters and numbers, and the library's own Cosine and WSD. The engine
steps them after each applied step; a schedule of PyTorch does as well."""
from __future__ import annotations

import math
from typing import Any

import torch

from .schedule import Rates, Schedule, positive, rates_of, share_of


class _Warmup(Schedule):
    def __init__(self, optimizer: torch.optim.Optimizer, warmup_num_steps: int, warmup_type: str, last_batch_iteration: int) -> None:
        super().__init__(optimizer, last_batch_iteration)
        if warmup_type not in ("log", "linear"):
            raise ValueError(f"warmup_type = {warmup_type!r} is not legal; legal: \"log\", \"linear\"")
        self.warmup_num_steps, self.warmup_type = max(2, positive(warmup_num_steps, "warmup_num_steps")), warmup_type

    def _warmed(self) -> float | None:
        """From 0 to 1 over the warm-up; None after it."""
        if self.last_batch_iteration >= self.warmup_num_steps:
            return None
        if self.warmup_type == "linear":
            return self.last_batch_iteration / self.warmup_num_steps
        return math.log(self.last_batch_iteration + 1) / math.log(self.warmup_num_steps)


class WarmupLR(_Warmup):
    """From warmup_min_lr to warmup_max_lr (None: the groups' own) over warmup_num_steps, then constant."""

    def __init__(self, optimizer: torch.optim.Optimizer, warmup_min_lr: Rates = 0.0, warmup_max_lr: Rates | None = None,
                 warmup_num_steps: int = 1000, warmup_type: str = "log", last_batch_iteration: int = -1) -> None:
        super().__init__(optimizer, warmup_num_steps, warmup_type, last_batch_iteration)
        if warmup_max_lr is None:
            warmup_max_lr = rates_of(optimizer)
        self.min_lrs, self.max_lrs = self._each(warmup_min_lr, "warmup_min_lr"), self._each(warmup_max_lr, "warmup_max_lr")
        self._start()

    def _after(self) -> float:
        return 1.0

    def get_lr(self) -> list[float]:
        if self.last_batch_iteration < 0:
            return list(self.min_lrs)
        share = self._warmed()
        share = self._after() if share is None else share
        return [low + (high - low) * share for low, high in zip(self.min_lrs, self.max_lrs)]


class WarmupDecayLR(WarmupLR):
    """WarmupLR, then linearly down to warmup_min_lr at total_num_steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, total_num_steps: int, warmup_min_lr: Rates = 0.0,
                 warmup_max_lr: Rates | None = 0.001, warmup_num_steps: int = 1000, warmup_type: str = "log",
                 last_batch_iteration: int = -1) -> None:
        self.total_num_steps = positive(total_num_steps, "total_num_steps")
        super().__init__(optimizer, warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type, last_batch_iteration)

    def _after(self) -> float:
        return max(0.0, (self.total_num_steps - self.last_batch_iteration) / max(1, self.total_num_steps - self.warmup_num_steps))


class WarmupCosineLR(_Warmup):
    """Shares of the groups' own rates: from warmup_min_ratio to 1, then along a cosine to cos_min_ratio."""

    def __init__(self, optimizer: torch.optim.Optimizer, total_num_steps: int, warmup_min_ratio: float = 0.0,
                 warmup_num_steps: int = 1000, cos_min_ratio: float = 0.0001, warmup_type: str = "log",
                 last_batch_iteration: int = -1) -> None:
        super().__init__(optimizer, warmup_num_steps, warmup_type, last_batch_iteration)
        self.total_num_steps = positive(total_num_steps, "total_num_steps")
        self.warmup_min_ratio, self.cos_min_ratio = warmup_min_ratio, cos_min_ratio
        self.org_lrs = rates_of(optimizer)
        self._start()

    def get_lr_ratio(self) -> float:
        if self.last_batch_iteration < 0:
            return 0.0
        share = self._warmed()
        if share is not None:
            return self.warmup_min_ratio + (1 - self.warmup_min_ratio) * share
        done = (self.last_batch_iteration - self.warmup_num_steps + 1) / max(1, self.total_num_steps - self.warmup_num_steps)
        return self.cos_min_ratio + (1 - self.cos_min_ratio) * (1 + math.cos(math.pi * min(1.0, done))) / 2

    def get_lr(self) -> list[float]:
        ratio = self.get_lr_ratio()
        return [rate * ratio for rate in self.org_lrs]


class LRRangeTest(Schedule):
    """A rate that grows by lr_range_test_step_rate × the first one every lr_range_test_step_size steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, lr_range_test_min_lr: Rates = 1e-3, lr_range_test_step_size: int = 2000,
                 lr_range_test_step_rate: float = 1.0, lr_range_test_staircase: bool = False, last_batch_iteration: int = -1) -> None:
        super().__init__(optimizer, last_batch_iteration)
        self.min_lr = self._each(lr_range_test_min_lr, "lr_range_test_min_lr")
        self.step_size = positive(lr_range_test_step_size, "lr_range_test_step_size")
        self.step_rate, self.staircase = lr_range_test_step_rate, lr_range_test_staircase
        self._start(self.min_lr)

    def get_lr(self) -> list[float]:
        done = (self.last_batch_iteration + 1) / self.step_size
        growth = 1 + self.step_rate * (math.floor(done) if self.staircase else done)
        return [rate * growth for rate in self.min_lr]


class OneCycle(Schedule):
    """cycle_min_lr up to cycle_max_lr and back, then decaying; beta1, where the rule has one, the other way round."""

    def __init__(self, optimizer: torch.optim.Optimizer, cycle_min_lr: Rates, cycle_max_lr: Rates, decay_lr_rate: float = 0.0,
                 cycle_first_step_size: int = 2000, cycle_second_step_size: int | None = None, cycle_first_stair_count: int = 0,
                 cycle_second_stair_count: int | None = None, decay_step_size: int = 0, cycle_momentum: bool = True,
                 cycle_min_mom: Rates = 0.8, cycle_max_mom: Rates = 0.9, decay_mom_rate: float = 0.0,
                 last_batch_iteration: int = -1) -> None:
        super().__init__(optimizer, last_batch_iteration)
        self.first = float(positive(cycle_first_step_size, "cycle_first_step_size"))
        self.second = self.first if cycle_second_step_size is None else float(positive(cycle_second_step_size, "cycle_second_step_size", 0))
        self.stairs = (cycle_first_stair_count,
                       cycle_first_stair_count if cycle_second_stair_count is None else cycle_second_stair_count)
        self.decay_step_size, self.decay_lr_rate, self.decay_mom_rate = decay_step_size, decay_lr_rate, decay_mom_rate
        self.min_lrs, self.max_lrs = self._each(cycle_min_lr, "cycle_min_lr"), self._each(cycle_max_lr, "cycle_max_lr")
        self.cycle_momentum = cycle_momentum and all("betas" in group for group in optimizer.param_groups)
        self.min_moms, self.max_moms = self._each(cycle_min_mom, "cycle_min_mom"), self._each(cycle_max_mom, "cycle_max_mom")
        self._start(self.min_lrs)
        if self.cycle_momentum and last_batch_iteration == -1:
            self._set_moms([(low, 0.99) for low in self.min_moms])

    def _set_moms(self, values: list[tuple[float, float]]) -> None:
        for group, value in zip(self.optimizer.param_groups, values):
            group["betas"] = value

    def _share(self) -> float:
        """0 at the ends of the cycle, 1 at its top."""
        total = self.first + self.second
        at = (self.last_batch_iteration + 1) % total
        rising = at <= self.first
        share, stairs = (at / self.first, self.stairs[0]) if rising else ((total - at) / self.second, self.stairs[1])
        return math.floor(share * stairs) / stairs if stairs else share

    def _decay(self, rate: float) -> float:
        """The factor after the cycle."""
        if not self.decay_step_size or not rate:
            return 1.0
        return 1 + rate * (self.last_batch_iteration - self.first - self.second + 1) / self.decay_step_size

    def get_lr(self) -> list[float]:
        if self.last_batch_iteration < self.first + self.second:
            share = self._share()
            return [low + (high - low) * share for low, high in zip(self.min_lrs, self.max_lrs)]
        return [low / self._decay(self.decay_lr_rate) for low in self.min_lrs]

    def get_mom(self) -> list[tuple[float, float]] | None:
        """betas of each group."""
        if not self.cycle_momentum:
            return None
        if self.last_batch_iteration < self.first + self.second:
            share = self._share()
            return [(high - (high - low) * share, 0.99) for low, high in zip(self.min_moms, self.max_moms)]
        return [(high * self._decay(self.decay_mom_rate), 0.99) for high in self.max_moms]

    def step(self, batch_iteration: int | None = None) -> None:
        super().step(batch_iteration)
        moms = self.get_mom()
        if moms is not None:
            self._set_moms(moms)


class _Own(Schedule):
    """Of the library, not of DeepSpeed: shares of the groups' own rates, up, along, down to min_ratio at total_num_steps, and
    constant after that."""

    def __init__(self, optimizer: torch.optim.Optimizer, total: int, warmup: int, warmup_min_ratio: float, min_ratio: float,
                 decay: int | None, decay_type: str, last_batch_iteration: int) -> None:
        super().__init__(optimizer, last_batch_iteration)
        self.total_num_steps = positive(total, "total_num_steps")
        self.warmup_num_steps = positive(warmup, "warmup_num_steps", 0)
        self.warmup_min_ratio, self.min_ratio = share_of(warmup_min_ratio, "warmup_min_ratio"), share_of(min_ratio, "min_ratio")
        self.decay_num_steps = max(0, total - warmup) if decay is None else positive(decay, "decay_num_steps", 0)
        self.decay_type = decay_type
        if warmup + self.decay_num_steps > total:
            raise ValueError(f"total_num_steps = {total} is less than warmup_num_steps = {warmup} and the {self.decay_num_steps} steps of the "
                             "decay together; lower one of these, or raise total_num_steps")
        self.org_lrs = rates_of(optimizer)
        self._start()

    def _falling(self, done: float) -> float:
        """From 1 to 0 while done goes from 0 to 1."""
        if self.decay_type == "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        return 1 - (math.sqrt(done) if self.decay_type == "sqrt" else done)

    def get_lr_ratio(self) -> float:
        applied = self.last_batch_iteration + 1
        if applied >= self.total_num_steps:
            return self.min_ratio
        if applied < self.warmup_num_steps:
            return self.warmup_min_ratio + (1 - self.warmup_min_ratio) * applied / self.warmup_num_steps
        begin = self.total_num_steps - self.decay_num_steps
        if applied < begin:
            return 1.0
        return self.min_ratio + (1 - self.min_ratio) * self._falling((applied - begin) / self.decay_num_steps)

    def get_lr(self) -> list[float]:
        ratio = self.get_lr_ratio()
        return [rate * ratio for rate in self.org_lrs]


class Cosine(_Own):
    """Linearly up from warmup_min_ratio over warmup_num_steps, then along half a cosine."""

    def __init__(self, optimizer: torch.optim.Optimizer, total_num_steps: int, warmup_num_steps: int = 0, warmup_min_ratio: float = 0.0,
                 min_ratio: float = 0.0, last_batch_iteration: int = -1) -> None:
        super().__init__(optimizer, total_num_steps, warmup_num_steps, warmup_min_ratio, min_ratio, None, "cosine", last_batch_iteration)


class WSD(_Own):
    """Warm-up, stable, decay in the last decay_num_steps. decay_type: "linear", "cosine", "sqrt"."""

    def __init__(self, optimizer: torch.optim.Optimizer, total_num_steps: int, decay_num_steps: int, warmup_num_steps: int = 0,
                 warmup_min_ratio: float = 0.0, min_ratio: float = 0.0, decay_type: str = "linear", last_batch_iteration: int = -1) -> None:
        if decay_type not in ("linear", "cosine", "sqrt"):
            raise ValueError(f"decay_type = {decay_type!r} is not legal; legal: \"linear\", \"cosine\", \"sqrt\"")
        super().__init__(optimizer, total_num_steps, warmup_num_steps, warmup_min_ratio, min_ratio, decay_num_steps, decay_type,
                         last_batch_iteration)


_DEEPSPEED: tuple[type[Schedule], ...] = (LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR)
VALID_LR_SCHEDULES = [each.__name__ for each in _DEEPSPEED]
_KINDS: tuple[type[Schedule], ...] = (*_DEEPSPEED, Cosine, WSD)
SCHEDULES: dict[str, type[Schedule]] = {each.__name__: each for each in _KINDS}


def from_config(section: dict[str, Any], optimizer: torch.optim.Optimizer) -> Schedule | None:
    """The schedule of a configuration's "scheduler"; None without one."""
    name = section.get("type")
    if name is None:
        return None
    if name not in SCHEDULES:
        raise ValueError(f"scheduler.type = {name!r} is not legal; legal: {', '.join(SCHEDULES)}")
    try:
        return SCHEDULES[name](optimizer, **(section.get("params") or {}))
    except TypeError as error:
        raise ValueError(f"scheduler.params of {name}: {error}") from error

# SPDX-License-Identifier: Apache-2.0
"""States that leave the device between two steps and come back, by DeepSpeed's names."""
from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from .. import lowlevel

if TYPE_CHECKING:
    from collections.abc import Container

    from .. import Engine as LibraryEngine
    from .parameters import Parameters


class OffloadDeviceEnum(enum.StrEnum):
    none, cpu, nvme = "none", "cpu", "nvme"


class OffloadStateTypeEnum(enum.StrEnum):
    optim_states = "optim_states"
    hp_params = "hp_params"
    lp_params = "lp_params"
    lp_grads = "lp_grads"
    contiguous_grad_buffer = "contiguous_grad_buffer"


_STATES = {OffloadStateTypeEnum.optim_states: lowlevel.STATES_MOMENTS, OffloadStateTypeEnum.hp_params: lowlevel.STATES_MASTER,
           OffloadStateTypeEnum.lp_params: lowlevel.STATES_PUBLISHED, OffloadStateTypeEnum.lp_grads: lowlevel.STATES_GRADIENTS,
           OffloadStateTypeEnum.contiguous_grad_buffer: lowlevel.STATES_GRADIENTS}


class Moved:
    """Of an engine. Which states are away stands in _states_away: lowlevel.STATES_…, a sum."""

    parameters_of: Parameters
    _library: LibraryEngine
    _states_away = 0

    if TYPE_CHECKING:  # of the engine
        def _end_acquires(self, is_boundary: bool = True) -> None: ...

    def offload_states(self, include: Container[Any] | None = None, device: Any = OffloadDeviceEnum.cpu, pin_memory: bool = True,
                       non_blocking: bool = False) -> None:
        """Moves states from the device to host memory, so that another model can use the device. include: OffloadStateTypeEnum, or their
        texts; None: all. Until reload_states a call that needs them raises. The move is over when this returns, whatever non_blocking.
        Between two windows. Collective."""
        if device != OffloadDeviceEnum.cpu:
            raise ValueError(f"offload_states: device = {getattr(device, 'value', device)!r}; legal is \"cpu\", the host's memory")
        for each in include if isinstance(include, (list, tuple, set, frozenset)) else ():
            if each not in list(OffloadStateTypeEnum):
                raise ValueError(f"offload_states: include has {each!r}; legal are {', '.join(state.value for state in OffloadStateTypeEnum)}")
        states = 0
        for name, state in _STATES.items():
            if include is None or name in include:
                states |= state
        if states == 0:
            return
        published = states & lowlevel.STATES_PUBLISHED
        if published:
            self._end_acquires()
            self.parameters_of.let_go()
        try:
            self._library.offload_states(states, pin_memory)
        except Exception:
            if published:
                self.parameters_of.take_again()
            raise
        self._states_away = states

    def reload_states(self, non_blocking: bool = False) -> None:
        """Moves all of it back; it is there when this returns. Collective."""
        self._library.reload_states()
        published = self._states_away & lowlevel.STATES_PUBLISHED
        self._states_away = 0
        if published:
            self.parameters_of.take_again()

    def _require_here(self) -> None:
        """Before a forward, which needs the parameters."""
        if self._states_away & lowlevel.STATES_PUBLISHED:
            raise RuntimeError("forward: the parameters left the device with offload_states: call reload_states first")

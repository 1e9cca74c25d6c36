# SPDX-License-Identifier: Apache-2.0
"""An engine's values, read and written by parameter."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from .. import lowlevel

if TYPE_CHECKING:
    from .. import Comm
    from .. import Engine as LibraryEngine
    from .devices import Device
    from .gathering import Gathering
    from .gradients import Gradients
    from .parameters import Parameters


class Values:
    """Values are named as outrigger.lowlevel.VALUE_…; the functions of outrigger.torch.utils are these by DeepSpeed's names.
    ValueError: a tensor that is no parameter of this engine; OutriggerError: E_NOT_FOUND, it has no such value."""

    handle: lowlevel.Engine
    world_size: int
    parameters_of: Parameters
    gathering: Gathering | None
    _device: Device
    _library: LibraryEngine
    _comm: Comm
    _lock: threading.Lock
    _pass: lowlevel.Pass | None
    _gave: bool
    _reduced: bool
    gradients: Gradients

    if TYPE_CHECKING:  # of the engine
        def open_pass(self) -> float: ...
        def close_pass(self) -> None: ...
        def is_gradient_accumulation_boundary(self) -> bool: ...
        def is_window_empty(self) -> bool: ...
        def _end_acquires(self, is_boundary: bool = True) -> None: ...

    def id_of(self, parameter: torch.Tensor) -> int:
        identity: int | None = self.parameters_of.ids.get(parameter)
        if identity is None:
            raise ValueError("this tensor is no parameter of this engine; give one of engine.module.parameters()")
        return identity

    def _kind(self, parameter: torch.Tensor, value: int) -> int:
        """A frozen parameter's weight is what is published."""
        if value == lowlevel.VALUE_MASTER and not self.parameters_of.learns(parameter):
            return lowlevel.VALUE_PUBLISHED
        return value

    def read(self, parameter: torch.Tensor, value: int) -> torch.Tensor:
        """A float32 tensor of the parameter's shape, on its device. Collective."""
        out = torch.empty(parameter.shape)
        lowlevel.engine_parameter_read(self.handle, self.id_of(parameter), self._kind(parameter, value), out)
        return out.to(self._device.device)

    def write(self, parameter: torch.Tensor, source: Any, value: int, rank: int = 0) -> None:
        """Sets the value from that rank's tensor (or array), of the parameter's shape, any floating dtype. Collective."""
        self.id_of(parameter)
        source = torch.as_tensor(source).detach()
        if rank != 0:
            if not 0 <= rank < self.world_size:
                raise ValueError(f"rank {rank} is outside 0..{self.world_size - 1}")
            source = source.float().cpu().contiguous().clone()
            self._comm.broadcast(source.view(-1).numpy(), rank)
        self.set_value(parameter, source, value)
        if value == lowlevel.VALUE_GRAD:
            self.gradients.written(parameter)
        else:
            torch.autograd.graph.increment_version(parameter)
            self.parameters_of.noted(parameter)

    def set_value(self, parameter: torch.Tensor, source: torch.Tensor, value: int) -> None:
        """write() from rank 0, of which autograd hears nothing."""
        self._require_writable(value)
        self._device.wait()
        lowlevel.engine_parameter_write(self.handle, self.id_of(parameter), value, source.cpu())

    def whole(self, parameters: Iterable[torch.Tensor]) -> contextlib.AbstractContextManager[Any]:
        """A block in which the parameters' values can be read. Collective at stage 3 over ranks that do not share them."""
        return contextlib.nullcontext() if self.gathering is None else self.gathering.whole(parameters)

    def take_weights(self, parameters: Iterable[torch.Tensor] | None = None) -> None:
        """Makes what the parameters hold now (None: all) their weights, masters included: after the host wrote into their
        memory in a way that autograd does not see, such as through `.data`. Not between a backward and its step. Rank 0's
        values win. At stage 3 the ranks of a host share that memory: only one of them writes, or all the same. Collective."""
        for parameter in self.parameters_of.ids if parameters is None else parameters:
            self.write(parameter, parameter.detach().clone(), lowlevel.VALUE_MASTER)

    def local_count(self, parameter: torch.Tensor) -> int:
        return self._library.local_range(self.id_of(parameter))[1]

    def read_local(self, parameter: torch.Tensor, value: int) -> torch.Tensor:
        """The elements that this rank updates, float32, 1-D. Local."""
        out = torch.empty(self.local_count(parameter))
        lowlevel.engine_local_read(self.handle, self.id_of(parameter), value, out)
        return out.to(self._device.device)

    def write_local(self, parameter: torch.Tensor, source: Any, value: int) -> None:
        """Sets the elements that this rank updates: 1-D, local_count of them. Local."""
        self._require_writable(value)
        self._device.wait()
        lowlevel.engine_local_write(self.handle, self.id_of(parameter), value, torch.as_tensor(source).detach().cpu())
        if value == lowlevel.VALUE_GRAD:
            self.gradients.written(parameter)

    def _require_writable(self, value: int) -> None:
        if value != lowlevel.VALUE_GRAD and not self.is_window_empty():
            raise RuntimeError("a weight or a state was set between a backward and the step that uses its gradients, which were taken at the old "
                               "values; set it before the window's first backward or after step()")

    def reduce(self) -> bool:
        """Makes the window's gradients readable and replaceable until step(): sums them over the ranks. False: they are not
        complete. Collective."""
        if self._reduced:
            return True
        if self.is_window_empty() or not self.is_gradient_accumulation_boundary():
            return False
        self._reduce_now()
        return True

    def gradient(self, parameter: torch.Tensor, how: Callable[[torch.Tensor, int], torch.Tensor]) -> torch.Tensor | None:
        """how: read or read_local. None: it has none, or not yet."""
        if not self.parameters_of.learns(parameter) or not self.reduce():
            return None
        self.gradients.write_back()  # what was changed in `.grad`
        return how(parameter, lowlevel.VALUE_GRAD) if self._library.has_grad(self.id_of(parameter)) else None

    def _reduce_now(self) -> None:
        if not self._gave:  # in this micro-batch, of which the library wants to hear all the same
            self.open_pass()
        self.close_pass()
        self._end_acquires()
        self._library.reduce()
        self._reduced = True
        self.gradients.add_carried()

    def require_reduced(self, call: str) -> None:
        if not self.reduce():
            raise RuntimeError(f"{call}: there is no complete gradient yet; call it after the backward of the window's last "
                               "micro-batch and before step()")

# SPDX-License-Identifier: Apache-2.0
"""zero.Init and zero.GatheredParameters."""
from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch
import torch.distributed

from .. import lowlevel
from . import devices, distributed
from .held import LOOSE, show
from .launched import launched_comm
from .owned import engine_of
from .sharded import Slices, slice_of


class Init(contextlib.ContextDecorator):
    """Where a module is built that no rank shall hold whole: inside it a parameter is whole while its module is built or a
    function of PyTorch is called with it, and then each rank keeps a slice, until initialize. Collective: all ranks build
    alike; where values differ rank 0's win. dtype: of the parameters made inside. module: one that is built already. device:
    where initialize shall put the engine, such as "cuda"; until then parameters are made where they are, on the host by default.
    remote_device, pin_memory and the rest are DeepSpeed's arguments; those that would change a result are refused with
    NotImplementedError. Starts torch.distributed where it is not."""

    def __init__(self, module: torch.nn.Module | None = None, data_parallel_group: object = None, mem_efficient_linear: bool = True,
                 remote_device: str | None = None, pin_memory: bool = False, config_dict_or_path: object = None, config: object = None,
                 enabled: bool = True, dtype: torch.dtype | None = None, mpu: object = None,
                 device: torch.device | str | None = None, **options: Any) -> None:
        if options:
            raise NotImplementedError(f"zero.Init: {', '.join(sorted(options))} is not supported")
        if remote_device not in (None, "none", "cpu"):
            raise NotImplementedError(f"zero.Init: remote_device={remote_device!r} is not supported; legal: None, \"cpu\"")
        self._dtype, self._enabled = dtype, enabled
        self._device = None if device is None else torch.device(device)
        self._slices: Slices | None = None
        if enabled:
            distributed.init_distributed()
            comm = launched_comm()
            if comm.size > 1:
                self._slices = Slices(comm)
            if module is not None:
                self._take(module)

    def _take(self, module: torch.nn.Module) -> None:
        if self._dtype is not None:
            module.to(self._dtype)
        for each in module.modules():
            for name, parameter in each.named_parameters(recurse=False):
                self._add(each, name, parameter)
        if self._slices is not None:
            self._slices.settle()

    def _add(self, module: torch.nn.Module, name: str, parameter: torch.Tensor | None) -> None:
        """A parameter that a module has got."""
        if self._device is not None and parameter is not None:
            devices.destine(parameter, self._device)
        if self._slices is not None:
            self._slices.add(module, name, parameter)

    def __enter__(self) -> Init:
        self._before = torch.get_default_dtype()
        if self._enabled and self._dtype is not None:
            torch.set_default_dtype(self._dtype)
        self._hook = None
        if self._enabled and not (self._slices is None and self._device is None):
            self._hook = torch.nn.modules.module.register_module_parameter_registration_hook(self._add)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        torch.set_default_dtype(self._before)
        if self._hook is not None:
            self._hook.remove()
        if self._slices is not None and kind is None:
            self._slices.settle()


class GatheredParameters:
    """Parameters whole, for reading; with modifier_rank also for writing: what that rank leaves in them becomes the
    weight, master included, on all ranks. Before initialize, too. Collective with modifier_rank. RuntimeError: a parameter was
    written into without modifier_rank."""

    def __init__(self, params: torch.Tensor | Iterable[torch.Tensor], modifier_rank: int | None = None,
                 fwd_module: torch.nn.Module | None = None, enabled: bool = True) -> None:
        tensors = [params] if isinstance(params, torch.Tensor) else list(params)
        self._params = list(dict.fromkeys(tensors)) if enabled else []  # a tied one once
        self._modifier = modifier_rank

    def __enter__(self) -> None:
        self._whole = contextlib.ExitStack()
        for each in self._params:
            engine, own = engine_of(each), slice_of(each)
            if engine is not None:
                self._whole.enter_context(engine.whole([each]))
            elif own is not None:
                self._whole.enter_context(own.pinned())
        self._views = [each.data for each in self._params]
        self._before = [_content(each) for each in self._params] if self._modifier is None else []
        self._inner = {each for each in self._params if getattr(each, LOOSE, False)}  # in a block that writes into it
        if self._modifier is not None:
            for parameter in self._params:
                if engine_of(parameter) is not None:
                    show(parameter, parameter.data.clone())
                    setattr(parameter, LOOSE, True)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        with self._whole:
            if self._modifier is None:
                if kind is None:
                    self._require_unchanged()
                return
            for parameter, view in zip(self._params, self._views):
                engine = engine_of(parameter)
                if engine is not None:
                    written = parameter.data
                    show(parameter, view)
                    if parameter not in self._inner:
                        delattr(parameter, LOOSE)
                    if kind is None:
                        engine.write(parameter, written, lowlevel.VALUE_MASTER, self._modifier)
                        if parameter in self._inner:
                            view.copy_(engine.read(parameter, lowlevel.VALUE_PUBLISHED))
                elif kind is None:
                    _spread(parameter, self._modifier)

    def _require_unchanged(self) -> None:
        changed = [tuple(each.shape) for each, before in zip(self._params, self._before) if _content(each) != before]
        if changed:
            raise RuntimeError(f"parameters of shapes {', '.join(map(str, changed))} were written into inside zero.GatheredParameters without "
                               "modifier_rank, so the ranks may differ now: give modifier_rank=0 and write on that rank, or on all alike")


def _content(parameter: torch.Tensor) -> tuple[int, int]:
    """Changes with what is written, through `.data` too: where it lies, and the sum of its bits."""
    flat = parameter.detach().reshape(-1)
    bits = flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
    return parameter.data_ptr(), int(bits.sum(dtype=torch.int64))


def _spread(parameter: torch.Tensor, rank: int) -> None:
    """Gives a parameter without an engine that rank's values on all ranks."""
    distributed.init_distributed()
    if not 0 <= rank < torch.distributed.get_world_size():
        raise ValueError(f"modifier_rank = {rank} is outside 0..{torch.distributed.get_world_size() - 1}")
    with torch.no_grad():
        whole = parameter.detach().contiguous()
        torch.distributed.broadcast(whole, rank)
        parameter.copy_(whole)

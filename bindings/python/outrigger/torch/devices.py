# SPDX-License-Identifier: Apache-2.0
"""Where an engine's parameters are: what its device is called here and in the library, in which stream this thread computes, and
how memory becomes a tensor. The rest of the adapter asks this module and is the same on every device."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import to_dlpack

from .. import lowlevel

if TYPE_CHECKING:
    from ..lowlevel import TensorView

_NAME = "_outrigger_device"  # at a parameter that is made elsewhere than it shall be trained


class Device:
    """The CPU. place: type and number in the library; None: what that has by itself. Any thread; a stream is the calling thread's
    current one."""

    def __init__(self, device: torch.device) -> None:
        self.device = torch.device("cpu")
        self.place: tuple[int, int] | None = None

    def info(self) -> lowlevel.CallInfo | None:
        """For a call whose tensors are used in the order of the current stream."""
        return None

    def show(self, view: TensorView) -> torch.Tensor:
        """A tensor over memory of the library, which it keeps."""
        return torch.from_dlpack(view)

    def give(self, tensor: torch.Tensor) -> Any:
        """The tensor's memory, for the library. (Its own __dlpack__ would have a stream of a device wait.)"""
        return to_dlpack(tensor)

    def wait(self) -> None:
        """The host waits for the current stream: values are read or written next, in no stream's order."""

    def trim(self) -> None:
        """What PyTorch has freed goes back to the system; glibc keeps it for itself otherwise."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

    def random_state(self) -> torch.Tensor | None:
        """Of a generator that the device has for itself."""
        return None

    def set_random_state(self, state: torch.Tensor) -> None:
        """What random_state gave."""


class Cuda(Device):
    """A GPU of CUDA."""

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device, self.place = torch.device("cuda", index), (lowlevel.DEVICE_CUDA, index)
        self._infos: dict[int, lowlevel.CallInfo] = {}

    def info(self) -> lowlevel.CallInfo:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a call of an engine is captured into a CUDA graph, in which its backward and step would be missing: capture only what is "
                               "inside of the module (torch.cuda.make_graphed_callables, engine.compile)")
        stream = torch.cuda.current_stream(self.device).cuda_stream
        if stream not in self._infos:
            info = lowlevel.CallInfo()
            info.stream = stream
            self._infos[stream] = info
        return self._infos[stream]

    def wait(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()

    def trim(self) -> None:
        super().trim()
        with torch.cuda.device(self.device):
            torch.cuda.empty_cache()

    def random_state(self) -> torch.Tensor:
        return torch.cuda.get_rng_state(self.device)

    def set_random_state(self, state: torch.Tensor) -> None:
        torch.cuda.set_rng_state(state, self.device)


KINDS: dict[str, Callable[[torch.device], Device]] = {"cpu": Device, "cuda": Cuda}


def destine(parameter: torch.Tensor, device: torch.device) -> None:
    """An engine shall train it there, wherever it is made."""
    setattr(parameter, _NAME, device)


def of(parameters: Iterable[torch.Tensor]) -> Device:
    """The one on which they all are, or shall be. ValueError: they are on several; NotImplementedError: none that the library drives."""
    found = {getattr(each, _NAME, each.device) for each in parameters}
    kinds = sorted(map(str, found))
    if len(found) > 1:
        raise ValueError(f"the model's parameters are on {', '.join(kinds[:-1])} and {kinds[-1]}, and an engine is on one device: move the model first, for "
                         f"example model.to({kinds[-1]!r})")
    device = next(iter(found), torch.device("cpu"))
    if device.type not in KINDS:
        raise NotImplementedError(f"the model's parameters are on {device}, for which there is no engine: legal are {' and '.join(KINDS)}; move the model there "
                                  "first, for example model.to(\"cpu\")")
    return KINDS[device.type](device)

# SPDX-License-Identifier: Apache-2.0
"""Copies between an accelerator's memory and the host's, beside what the accelerator computes."""
from __future__ import annotations

from typing import Any, Protocol

import torch


class Copies(Protocol):
    """Copies of one device. A copy has arrived when wait() of what began it returns, not before; those of one direction arrive
    in the order in which they began. Any thread."""

    def memory(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory of the host that copies take without a detour."""
        ...

    def down(self, source: torch.Tensor, target: torch.Tensor) -> Any:
        """Begins a copy to the host of what the current stream has written by now."""
        ...

    def wait(self, copy: Any) -> None:
        """The host waits for a copy."""
        ...

    def open_up(self) -> None:
        """Copies to the device that follow begin after what the current stream has to do now, which reads their targets."""
        ...

    def up(self, source: torch.Tensor, target: torch.Tensor) -> Any:
        """Begins a copy to the device."""
        ...

    def close_up(self) -> None:
        """What the current stream does from now on sees all copies to the device."""
        ...


class StreamCopies:
    """By a stream for each direction, of any device that PyTorch has streams and events for."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._module = device, torch.get_device_module(device)
        self._down, self._up = self._module.Stream(device=device), self._module.Stream(device=device)

    def memory(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(count, dtype=dtype, pin_memory=True)

    def down(self, source: torch.Tensor, target: torch.Tensor) -> Any:
        self._down.wait_stream(self._module.current_stream(self._device))
        done = self._copy(source, target, self._down)
        source.record_stream(self._down)  # zero_grad may give it back before the copy has read it
        return done

    def wait(self, copy: Any) -> None:
        copy.synchronize()

    def open_up(self) -> None:
        self._up.wait_stream(self._module.current_stream(self._device))

    def up(self, source: torch.Tensor, target: torch.Tensor) -> Any:
        return self._copy(source, target, self._up)

    def close_up(self) -> None:
        self._module.current_stream(self._device).wait_stream(self._up)

    def _copy(self, source: torch.Tensor, target: torch.Tensor, stream: Any) -> Any:
        with self._module.stream(stream):
            target.copy_(source, non_blocking=True)
        done = self._module.Event()
        done.record(stream)
        return done


def copies_of(device: torch.device) -> Copies | None:
    """None: the host's own memory, where nothing is copied."""
    return None if device.type == "cpu" else StreamCopies(device)

# SPDX-License-Identifier: Apache-2.0
"""The library's memory of a GPU from PyTorch's cache, so that neither of the two keeps memory that the other one wants."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .. import lowlevel

if TYPE_CHECKING:
    from .. import Context


def share_caching_allocator(context: Context, device: torch.device | str | int | None = None) -> None:
    """Engines of this context take their memory on a GPU from PyTorch's caching allocator from now on; torch.cuda.memory_allocated()
    and its neighbours then count it. Before the first engine there. device: default the current one of CUDA.

    OutriggerError: E_STATE, engines of the context hold memory there; E_NOT_FOUND, no driver or plugin."""
    index = torch.cuda.current_device() if device is None else device if isinstance(device, int) else torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    taken_in: dict[int, int] = {}  # of an address: the stream, which PyTorch gives the memory to again

    def allocate(size: int, stream: int) -> int:
        address = torch.cuda.caching_allocator_alloc(size, index, stream)
        taken_in[address] = stream
        return address

    def release(address: int, size: int, stream: int) -> None:
        first = taken_in.pop(address)
        if first != stream:
            torch.cuda.ExternalStream(first, index).wait_stream(torch.cuda.ExternalStream(stream, index))
        torch.cuda.caching_allocator_delete(address)

    context.set_device_allocator(lowlevel.DEVICE_CUDA, index, allocate, release)

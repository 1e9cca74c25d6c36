# SPDX-License-Identifier: Apache-2.0
"""torch.distributed, as scripts want it to be ready."""
from __future__ import annotations

import atexit
import datetime
import os
import sys
from typing import Any

import torch.distributed


def init_distributed(dist_backend: str | None = None, auto_mpi_discovery: bool = True, distributed_port: int = 29500,
                     verbose: bool = True, timeout: datetime.timedelta | None = None, init_method: str | None = None,
                     dist_init_required: bool | None = None, config: object = None, rank: int = -1, world_size: int = -1) -> None:
    """Makes torch.distributed ready, as DeepSpeed's function of this name does: from the environment of torchrun or
    outrigger run, or as a group of one. Does nothing where it is ready. dist_backend: default "gloo", whose group made here
    ends with the script."""
    if torch.distributed.is_initialized() or dist_init_required is False:
        return
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    backend = dist_backend or "gloo"
    if world_size > 0 and rank >= 0:
        options.update(rank=rank, world_size=world_size)
    if init_method is not None or "RANK" in os.environ:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(distributed_port))
        torch.distributed.init_process_group(backend, init_method=init_method, **options)
    else:
        torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)
    if backend == "gloo":
        atexit.register(_end_group)


def _end_group() -> None:
    """gloo's threads may hold tensors of Python and give them back while the interpreter shuts down, which ends the process
    with SIGABRT (pytorch/pytorch#179291); so they end before. Not after an exception: peers may still be awaited."""
    if torch.distributed.is_initialized() and not hasattr(sys, "last_type"):
        torch.distributed.destroy_process_group()

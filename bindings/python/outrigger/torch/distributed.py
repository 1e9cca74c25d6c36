# SPDX-License-Identifier: Apache-2.0
"""torch.distributed, as scripts want it to be ready."""
from __future__ import annotations

import atexit
import datetime
import logging
import os
import sys
from typing import Any

import torch.distributed


log = logging.getLogger("outrigger.torch")
# What mpirun says, in Open MPI's words or PMI's, as torch.distributed and scripts want to read it.
_MPI = {"RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK"), "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
        "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")}
_OF_DEVICES = ("nccl", "ccl", "xccl", "hccl")


def init_distributed(dist_backend: str | None = None, auto_mpi_discovery: bool = True, distributed_port: int = 29500,
                     verbose: bool = True, timeout: datetime.timedelta | None = None, init_method: str | None = None,
                     dist_init_required: bool | None = None, config: object = None, rank: int = -1, world_size: int = -1) -> None:
    """Makes torch.distributed ready, as DeepSpeed's function of this name does: from the environment of torchrun,
    outrigger run or mpirun (auto_mpi_discovery; it is then told in torchrun's words, too), or as a group of one. Does nothing
    where it is ready. dist_backend: default "gloo", whose group made here ends with the script; also in the place of a
    backend of devices, with a warning, where there are none. timeout: default DEEPSPEED_TIMEOUT, in minutes, or PyTorch's."""
    if torch.distributed.is_initialized() or dist_init_required is False:
        return
    if timeout is None and "DEEPSPEED_TIMEOUT" in os.environ:
        timeout = datetime.timedelta(minutes=int(os.environ["DEEPSPEED_TIMEOUT"]))
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    backend = dist_backend or "gloo"
    if backend in _OF_DEVICES and not torch.accelerator.is_available():
        log.warning("init_distributed: there is no device for dist_backend=%r; gloo takes its place", backend)
        backend = "gloo"
    if auto_mpi_discovery and "RANK" not in os.environ:
        _discover_mpi()
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


def _discover_mpi() -> None:
    found = {name: next((os.environ[each] for each in names if each in os.environ), None) for name, names in _MPI.items()}
    if found["RANK"] is not None and found["WORLD_SIZE"] is not None:
        os.environ.update({name: value for name, value in found.items() if value is not None})


def _end_group() -> None:
    """gloo's threads may hold tensors of Python and give them back while the interpreter shuts down, which ends the process
    with SIGABRT (pytorch/pytorch#179291); so they end before. Not after an exception: peers may still be awaited."""
    if torch.distributed.is_initialized() and not hasattr(sys, "last_type"):
        torch.distributed.destroy_process_group()

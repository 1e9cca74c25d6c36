# SPDX-License-Identifier: Apache-2.0
"""torch.distributed, as scripts want it to be ready."""
from __future__ import annotations

import atexit
import datetime
import logging
import os
import pathlib
import sys
import time
from typing import Any

import torch.distributed

from . import attempts

log = logging.getLogger("outrigger.torch")
# What mpirun says, in Open MPI's words or PMI's, as torch.distributed and scripts want to read it.
_MPI = {"RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK"), "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
        "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")}
_OF_DEVICES = ("nccl", "ccl", "xccl", "hccl")


def init_distributed(dist_backend: str | None = None, auto_mpi_discovery: bool = True, distributed_port: int = 29500,
                     verbose: bool = True, timeout: datetime.timedelta | None = None, init_method: str | None = None,
                     dist_init_required: bool | None = None, config: object = None, rank: int = -1, world_size: int = -1) -> None:
    """Makes torch.distributed ready, as DeepSpeed's function of this name does: from the environment of torchrun (whose restarts
    leave nothing of former ranks to it), outrigger run or mpirun (auto_mpi_discovery; it is then told in torchrun's words, too), or as a
    group of one. Does nothing where it is ready. dist_backend: default "gloo", whose group made here ends with the script; also in the place of a
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
    if init_method is None and not options.keys() - {"timeout"} and attempts.agent_keeps_store():
        store, rank, world_size = attempts.attempt_store(timeout)
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, **options)
    elif init_method is not None or "RANK" in os.environ:
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
    """Ends gloo's threads. Not after an exception: peers may still be awaited."""
    if torch.distributed.is_initialized() and not hasattr(sys, "last_type"):
        torch.distributed.destroy_process_group()


def _await_gloo(seconds: float = 5.0) -> None:
    """A thread of gloo lets its tensors go after it has said that a collective has ended, and takes the interpreter's lock for it.
    One that waits for the lock while the interpreter shuts down ends the process with SIGABRT (pytorch/pytorch#179291). So the
    interpreter waits for the threads that are still there: FSDP2 keeps its group, and so its threads, after
    destroy_process_group(). A thread that slept through a time in which the lock was free does not wait for it."""
    end = time.monotonic() + seconds
    before = _gloo_threads()
    while before and time.monotonic() < end:
        time.sleep(0.005)
        after = _gloo_threads()
        if after == before and all(state == "S" for state, *_ in after.values()):
            return
        before = after


def _gloo_threads() -> dict[str, tuple[str, str, str]]:
    """State and numbers of switches of each thread of gloo; on Linux."""
    found = {}
    for status in pathlib.Path("/proc/self/task").glob("*/status"):
        try:
            facts = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue  # it has ended
        if facts.get("Name") == "pt_gloo_runloop":
            found[status.parent.name] = (facts["State"][0], facts.get("voluntary_ctxt_switches", ""),
                                         facts.get("nonvoluntary_ctxt_switches", ""))
    return found


atexit.register(_await_gloo)  # with the import, so that it comes after what scripts register

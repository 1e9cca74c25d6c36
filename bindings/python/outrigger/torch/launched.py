# SPDX-License-Identifier: Apache-2.0
"""The group of all processes that a launcher started, on any hosts."""
from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import numpy as np
import torch.distributed as dist

from .. import Comm
from ..process import process_comm
from . import distributed
from .process_group import comm_of

if TYPE_CHECKING:
    from .. import Context

_NAME = 16  # bytes


def launched_comm() -> Comm:
    """This process's group, made at first use. On one host as Comm.from_env makes it. On several hosts: of torch.distributed's
    default group, which init_distributed has told of torchrun's or mpirun's ranks, with shared memory on each host where all have
    as many consecutive ranks. Collective at first use."""
    return process_comm(_over_hosts if _several_hosts() else Comm.from_env)


def _number(name: str) -> int:
    return int(os.environ.get(name) or 0)


def _several_hosts() -> bool:
    return 0 < _number("LOCAL_WORLD_SIZE") < _number("WORLD_SIZE")


def _over_hosts(context: Context) -> Comm:
    distributed.init_distributed()
    # The library moves bytes of the host's memory.
    world = comm_of(context, None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo"))
    each, place, rank = _number("LOCAL_WORLD_SIZE"), _number("LOCAL_RANK"), world.rank
    facts = np.array([each, rank % each == place], np.float64)
    world.all_reduce_sum(facts)
    even = facts.tolist() == [each * world.size, world.size] and world.size % each == 0
    whole = np.array([even], np.float64)
    world.all_reduce_sum(whole)  # hosts that differ see different sums
    if each == 1 or whole[0] < world.size:
        return world
    # Of the host's first rank: a name that no other job has, and no former attempt of this one.
    names, first = world.all_gather(secrets.token_bytes(_NAME)), _NAME * (rank - place)
    host = Comm.shared_memory(context, rank=place, world_size=each, job=names[first:first + _NAME].hex())
    return Comm.hierarchical(world, host, world.split(place, rank))

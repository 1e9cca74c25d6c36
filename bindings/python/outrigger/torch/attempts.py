# SPDX-License-Identifier: Apache-2.0
"""A store for one attempt of a job. torchrun's agent keeps its store over restarts, with all that the ranks of former attempts wrote
(pytorch/pytorch#135712), and nothing in the environment differs between any two attempts on all hosts: each agent counts its own
restarts. A rank that found the address of a dead one there would wait for it."""
from __future__ import annotations

import datetime
import os
import time

from torch.distributed import DistStoreError, PrefixStore, Store, TCPStore
from torch.distributed.constants import default_pg_timeout

from .. import meeting

_PREFIX = "outrigger"


class StoreBoard:
    """A store of torch.distributed, as outrigger.meeting wants it."""

    def __init__(self, store: Store):
        self._store = store

    def set(self, key: str, text: str) -> None:
        self._store.set(f"{_PREFIX}/{key}", text)

    def get(self, key: str) -> str:
        return self._store.get(f"{_PREFIX}/{key}").decode()

    def has(self, key: str) -> bool:
        return self._store.check([f"{_PREFIX}/{key}"])

    def wait(self, key: str, seconds: float) -> bool:
        try:
            self._store.wait([f"{_PREFIX}/{key}"], datetime.timedelta(seconds=seconds))
        except DistStoreError:
            return False
        return True

    def pause(self, missing: list[int]) -> None:
        time.sleep(0.02)


def agent_keeps_store() -> bool:
    """Whether torchrun's agent has the store at MASTER_ADDR and MASTER_PORT."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and all(name in os.environ for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"))


def attempt_store(timeout: datetime.timedelta | None = None) -> tuple[Store, int, int]:
    """The part of the agent's store that this attempt's ranks share with nobody, this rank and the number of ranks. Collective.
    OutriggerError E_TIMEOUT: ranks did not come in time, by number."""
    wait = timeout or default_pg_timeout
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=wait)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    name = meeting.agree(StoreBoard(store), rank, world, wait.total_seconds())
    return PrefixStore(f"{_PREFIX}/{name}", store), rank, world

# SPDX-License-Identifier: Apache-2.0
"""Groups of gloo that torch.distributed's default group need not be there for, any number in a process."""
from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from torch.distributed import PrefixStore, ProcessGroupGloo, Store, Work

from .process_group import bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Gloo: Any = ProcessGroupGloo  # PyTorch's types have few of its members


class GlooChannel:
    """One group with an order of its own, as outrigger.Comm.custom wants it. store: of these ranks alone; address: this host's, as the
    others reach it; timeout: seconds that a call waits; blame: called when a call has failed, may raise what says more. Collective."""

    def __init__(self, store: Store, rank: int, world_size: int, address: str, timeout: float, blame: Callable[[], object] = lambda: None):
        self.rank, self.world_size = rank, world_size
        self._store, self._address, self._timeout, self._blame = store, address, timeout, blame
        self._made = 0  # of this one, by all of its ranks in the same order
        options = _Gloo._Options()
        options._devices = [_Gloo.create_device(hostname=address)]
        options._timeout = datetime.timedelta(seconds=timeout)
        self._group = _Gloo(PrefixStore("group", store), rank, world_size, options)

    def all_gather(self, mine: memoryview, all: memoryview) -> None:
        self._wait(self._group._allgather_base(bytes_of(all), bytes_of(mine)))

    def broadcast(self, data: memoryview, root: int) -> None:
        self._wait(self._group.broadcast(bytes_of(data), root))

    def all_to_all(self, parts: memoryview, received: memoryview) -> None:
        self._wait(self._group.alltoall_base(bytes_of(received), bytes_of(parts), [], []))

    def _wait(self, work: Work) -> None:
        try:
            work.wait()
        except RuntimeError:
            self._blame()
            raise

    def duplicate(self) -> GlooChannel:
        return self._another("all", self.rank, self.world_size)

    def split(self, groups: Sequence[int], places: Sequence[int]) -> GlooChannel | None:
        group = groups[self.rank]
        ranks = [rank for _, rank in sorted((places[rank], rank) for rank in range(self.world_size) if groups[rank] == group)]
        if group >= 0:
            return self._another(str(group), ranks.index(self.rank), len(ranks))
        self._made += 1  # as the ranks that are in a group do
        return None

    def _another(self, name: str, rank: int, size: int) -> GlooChannel:
        self._made += 1
        return GlooChannel(PrefixStore(f"{self._made}/{name}", self._store), rank, size, self._address, self._timeout, self._blame)

    def abort(self, reason: str | None) -> None:
        """Ends this rank's connections: the others' calls fail."""
        self._group.abort()

    def close(self) -> None:
        """The group ends with the last reference to it."""

# SPDX-License-Identifier: Apache-2.0
"""Comm: a group of ranks and its collectives."""
from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from . import lowlevel
from .handle import Handle, options_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self, Unpack

    from .arrays import Memory
    from .context import Context


class Channel(Protocol):
    """What Comm.custom wants of an object. Memory comes as memoryviews of bytes that hold during the call."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    def all_gather(self, mine: memoryview, all: memoryview) -> object: ...
    def broadcast(self, data: memoryview, root: int) -> object: ...
    def all_to_all(self, parts: memoryview, received: memoryview) -> object: ...
    def duplicate(self) -> Channel: ...
    def abort(self, reason: str | None) -> object: ...
    def close(self) -> object: ...


class Comm(Handle[lowlevel.Comm]):
    """A group of ranks; made by the class methods. One thread at a time uses it. Options: timeout (seconds that a call
    waits for a silent rank, default 300) and, where they are named, rank, world_size, job.

    Collective calls raise OutriggerError: E_PEER_DEAD, E_TIMEOUT and E_ABORTED name the rank, E_MISMATCH what it did
    otherwise. Ctrl-C on the main thread ends a wait with KeyboardInterrupt; the call can be made again."""

    @classmethod
    def self_group(cls, context: Context) -> Self:
        """A group of one. Local."""
        return cls(lowlevel.comm_create_self(context.handle))

    @classmethod
    def threads(cls, context: Context, world_size: int, timeout: float | None = None) -> list[Self]:
        """A group inside this process, each rank to be driven by a thread of its own. Local."""
        handles = lowlevel.comm_create_threads(context.handle, world_size,
                                               options_of(lowlevel.CommOptions, {} if timeout is None else {"timeout": timeout}))
        return [cls(handle) for handle in handles]

    @classmethod
    def shared_memory(cls, context: Context, **options: Unpack[lowlevel._CommOptions]) -> Self:
        """Processes of one user on this host; rank, world_size and job (the same text for all of them) are required.
        Collective."""
        return cls(lowlevel.comm_create_shm(context.handle, options_of(lowlevel.CommOptions, options) or lowlevel.CommOptions()))

    @classmethod
    def from_env(cls, context: Context, **options: Unpack[lowlevel._CommOptions]) -> Self:
        """The processes of the launcher (outrigger run, torchrun, mpirun, srun); without one, a group of one. Collective.
        OutriggerError E_CONFIG lists what was found in the environment."""
        return cls(lowlevel.comm_from_env(context.handle, options_of(lowlevel.CommOptions, options)))

    @classmethod
    def custom(cls, context: Context, channel: Channel) -> Self:
        """A group over the methods of an object: rank and world_size (attributes); all_gather(mine, all),
        broadcast(data, root), all_to_all(parts, received) on memoryviews that hold during the call; duplicate(), which
        returns another such object with an order of its own; abort(reason), close(). With a method split(groups, places) the
        group can be divided, by split and by a configuration's outrigger.mesh: rank r comes into group groups[r] (-1: into none)
        as its rank places[r], and the method returns an object for this rank's group, or None. Several threads call, one at a
        time for each object. What a method raises ends the group on this rank. Collective."""
        return cls(lowlevel.comm_create_custom(context.handle, channel))

    @classmethod
    def mpi(cls, context: Context, comm: object = None, timeout: float | None = None) -> Self:
        """The ranks of an MPI communicator, on any hosts. comm: an mpi4py communicator, or the address of an MPI_Comm; None:
        MPI_COMM_WORLD, of an MPI that Outrigger initialises if nobody has. A copy is used; destroy what is made from it before
        MPI_Finalize (mpi4py calls that when Python ends). Collective. OutriggerError E_NOT_FOUND: no MPI library, with every path
        tried; E_UNSUPPORTED: MPI was initialised without threads."""
        if comm is not None and not isinstance(comm, int):
            from mpi4py import MPI  # whose communicator it is
            if not isinstance(comm, MPI.Comm):
                raise TypeError(f"comm is a {type(comm).__name__}; it is an mpi4py communicator, the address of an MPI_Comm, or None")
            comm = MPI._addressof(comm)
        options = options_of(lowlevel.CommOptions, {} if timeout is None else {"timeout": timeout})
        return cls(lowlevel.comm_create_mpi(context.handle, comm, options))

    @classmethod
    def hierarchical(cls, world: Comm, host: Comm, across: Comm) -> Self:
        """Two levels, for hosts of as many consecutive ranks each: every rank, those of this rank's host, and those at its place on
        each host. Gradients are summed on a host first, and one float32 sum goes to each other host. The three stay the caller's.
        Collective. OutriggerError E_ARGUMENT: a rank has another place."""
        return cls(lowlevel.comm_create_hierarchical(world.handle, host.handle, across.handle))

    def duplicate(self) -> Self:
        """The same ranks with an order of their own, for another thread. Collective."""
        return type(self)(lowlevel.comm_duplicate(self.handle))

    def split(self, color: int, key: int = 0) -> Self | None:
        """The group of the ranks with the same color, ordered by key; None for color -1. Collective. OutriggerError
        E_UNSUPPORTED: a custom group whose object has no split."""
        handle = lowlevel.comm_split(self.handle, color, key)
        return None if handle is None else type(self)(handle)

    @property
    def rank(self) -> int:
        return lowlevel.comm_rank(self.handle)

    @property
    def size(self) -> int:
        return lowlevel.comm_size(self.handle)

    @property
    def shares_memory(self) -> bool:
        """The ranks see each other's memory: parameters are one copy for all of them, and acquiring one is local."""
        return lowlevel.comm_shares_memory(self.handle) != 0

    def barrier(self) -> None:
        """Returns when every rank has called it. Collective."""
        lowlevel.comm_barrier(self.handle)

    def broadcast(self, array: Memory, root: int = 0) -> None:
        """Copies rank root's bytes into every rank's array: any contiguous writable buffer, of one size on all ranks.
        Collective."""
        lowlevel.comm_broadcast(self.handle, array, root)

    def all_gather(self, data: Memory) -> bytes:
        """The bytes of all ranks, in rank order. data: any contiguous buffer, of one size on all ranks. Collective."""
        return lowlevel.comm_all_gather(self.handle, data)

    def all_to_all(self, parts: Memory, part_bytes: Iterable[int], received: Memory, received_bytes: Iterable[int]) -> None:
        """Sends a part to every rank and receives one from each. parts: one behind the other, of part_bytes[r] bytes for rank r; received: a
        writable buffer for received_bytes[r] bytes from rank r, as many as it sends here. Any contiguous buffers; ValueError where the sizes
        are not theirs. Collective. OutriggerError E_MISMATCH: a rank expects other sizes than are sent."""
        lowlevel.comm_all_to_all(self.handle, parts, part_bytes, received, received_bytes)

    def all_reduce_sum(self, array: Memory) -> None:
        """Replaces each element by its sum over ranks, added in rank order. array: float64, contiguous, of one size on all
        ranks; TypeError for another dtype. Collective."""
        lowlevel.comm_all_reduce_sum(self.handle, array)

    def abort(self, reason: str | None = None) -> None:
        """Ends the group: pending and later calls of all ranks raise OutriggerError E_ABORTED with this rank's number and
        the reason. Local, any thread."""
        lowlevel.comm_abort(self.handle, reason)

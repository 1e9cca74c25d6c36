# SPDX-License-Identifier: Apache-2.0
"""Ray's actors and Ray Train's workers as ranks, by one call in each of them:

    comm = outrigger.ray.group(actors)      in a method of each of these actors
    comm = outrigger.ray.group()            in the training function of Ray Train
"""
from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import ray
from ray.experimental import internal_kv

from . import Comm, Context, lowlevel, meeting
from .lowlevel import OutriggerError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["group"]
_NAMESPACE = "outrigger"
_LONGEST_PAUSE = 0.05  # seconds between two looks at the board
_KNOWN_WITHIN = 5.0  # seconds from an actor's death to Ray's knowledge of it
_ASK_EVERY = 1.0  # seconds of waiting for ranks until they are asked whether they live


def group(actors: Iterable[ray.actor.ActorHandle] | None = None, *, timeout: float = 300.0, context: Context | None = None) -> Comm:
    """The group of these actors, each of which calls this in a method: actors[r] is rank r. Without actors: of the workers of Ray Train, in whose
    training function it is called. Ranks on one node share memory. Over nodes it is gloo of PyTorch; where all nodes have as many ranks, side by side in
    the list, in two levels with shared memory on each node.

    timeout: seconds that ranks wait for each other, here and in the group's calls. A group is for one training: another call makes another,
    also after an actor was replaced in the list, and leaves the former one alone. context: its workers are the engine's; default: one worker.
    Collective.

    RuntimeError: Ray is not initialised, or this is no actor or no worker of Ray Train; TypeError, ValueError: no actors, an actor twice, this actor
    is not in the list; OutriggerError E_PEER_DEAD: an actor has died, by rank and class; E_TIMEOUT: ranks that did not come."""
    if not ray.is_initialized():
        raise RuntimeError("outrigger.ray.group: Ray is not initialised in this process; call it in Ray's actors, or in the training function of Ray Train")
    place = _place_in_train() if actors is None else _place_among(list(actors))
    made = context or Context(workers=1)
    board = _Board(place, timeout)
    name = meeting.agree(board, place.rank, place.size, timeout)
    mine = {"node": ray.get_runtime_context().get_node_id(), "address": ray.util.get_node_ip_address()}
    board.set(f"{name}/node/{place.rank}", json.dumps(mine))
    nodes = [json.loads(board.take(f"{name}/node/{rank}", rank))["node"] for rank in range(place.size)]
    if len(set(nodes)) == 1:
        comm = Comm.shared_memory(made, rank=place.rank, world_size=place.size, job=f"ray {name}", timeout=timeout)
    else:
        comm = _over_nodes(made, board, name, nodes, mine["address"])
    if place.rank == 0:
        board.forget(name)
    return comm


class _Place:
    """This rank among others. board: a name that all ranks make alike, and former ones may have made; actors: none of Ray Train."""

    def __init__(self, rank: int, size: int, board: str, actors: list[Any]):
        self.rank, self.size, self.board, self.actors = rank, size, board, actors


def _place_among(actors: list[Any]) -> _Place:
    if not actors:
        raise ValueError("outrigger.ray.group: the list of actors is empty; a group has one rank or more")
    ids: list[str] = []
    for rank, each in enumerate(actors):
        if not isinstance(each, ray.actor.ActorHandle):
            raise TypeError(f"outrigger.ray.group: actors[{rank}] is a {type(each).__name__}; give handles of actors, as Class.remote() returns them")
        if each._actor_id.hex() in ids:
            raise ValueError(f"outrigger.ray.group: {each!r} is rank {ids.index(each._actor_id.hex())} and rank {rank}; an actor is one rank, so give each once")
        ids.append(each._actor_id.hex())
    here = ray.get_runtime_context().get_actor_id()
    if here is None:
        raise RuntimeError("outrigger.ray.group: this process is no actor; call it in a method of each of the actors, and give the method the list")
    if here not in ids:
        raise ValueError(f"outrigger.ray.group: this actor ({here}) is not among the {len(actors)} of the list; each of them calls it, and nobody else")
    return _Place(ids.index(here), len(ids), hashlib.sha256(" ".join(ids).encode()).hexdigest(), actors)


def _place_in_train() -> _Place:
    text = "outrigger.ray.group: without a list of actors it is called in the training function of Ray Train, and this is none; give the list in an actor"
    try:
        import ray.train
        about = ray.train.get_context()
        rank, size = about.get_world_rank(), about.get_world_size()
    except ImportError as error:
        raise RuntimeError(f"{text} (Ray Train is not installed: {error})") from None
    except RuntimeError as error:
        raise RuntimeError(text) from error
    if rank is None or size is None:
        raise RuntimeError(text)
    return _Place(rank, size, f"train {ray.get_runtime_context().get_job_id()} {about.get_experiment_name()} {size}", [])


class _Board:
    """The texts that Ray keeps for all of its processes, as outrigger.meeting wants them."""

    def __init__(self, place: _Place, timeout: float):
        self._place, self._timeout = place, timeout
        self._asked: dict[int, Any] = {}  # by rank, the answer to come to the question whether it lives
        self._asked_at = self._waits_since = time.monotonic()

    def _key(self, key: str) -> str:
        return f"{self._place.board}/{key}"

    def set(self, key: str, text: str) -> None:
        internal_kv._internal_kv_put(self._key(key), text, namespace=_NAMESPACE)

    def get(self, key: str) -> str:
        text: bytes = internal_kv._internal_kv_get(self._key(key), namespace=_NAMESPACE)
        return text.decode()

    def has(self, key: str) -> bool:
        return bool(internal_kv._internal_kv_exists(self._key(key), namespace=_NAMESPACE))

    def forget(self, key: str) -> None:
        """What nobody reads any more; who asks may ask for another group already."""
        for each in (f"{key}/", "answer/"):
            internal_kv._internal_kv_del(self._key(each), del_by_prefix=True, namespace=_NAMESPACE)

    def wait(self, key: str, seconds: float) -> bool:
        return self._wait(key, seconds, [0])

    def take(self, key: str, rank: int) -> str:
        """What a rank has written, or is about to."""
        if not self._wait(key, self._timeout, [rank]):
            raise OutriggerError(lowlevel.E_TIMEOUT, f"rank {rank} was there and did not go on within {self._timeout:g} s; see what it printed")
        return self.get(key)

    def _wait(self, key: str, seconds: float, missing: list[int]) -> bool:
        self._waits_since = time.monotonic()
        while not self.has(key):
            if time.monotonic() - self._waits_since > seconds:
                return False
            self.pause(missing)
        return True

    def pause(self, missing: list[int]) -> None:
        now = time.monotonic()
        if self._place.actors and now - max(self._waits_since, self._asked_at) > _ASK_EVERY:
            self._require_alive(missing)
            self._asked_at = now
        time.sleep(min(_LONGEST_PAUSE, 0.002 + (now - self._waits_since) / 10))

    def blame(self) -> None:
        """After a call between nodes has failed: whose fault it was, if Ray knows it soon."""
        others = [rank for rank in range(len(self._place.actors)) if rank != self._place.rank]
        end = time.monotonic() + _KNOWN_WITHIN
        while others and time.monotonic() < end:
            self._require_alive(others)
            time.sleep(_LONGEST_PAUSE)

    def _require_alive(self, ranks: list[int]) -> None:
        """A living actor answers when it is done with what it does now; the answer of a dead one comes at once."""
        for rank in ranks:
            if rank not in self._asked:
                self._asked[rank] = self._place.actors[rank].__ray_ready__.remote()
        answers = list(self._asked.values())
        ready, _ = ray.wait(answers, num_returns=len(answers), timeout=0, fetch_local=False)
        for rank in [each for each, answer in self._asked.items() if answer in ready]:
            try:
                ray.get(self._asked.pop(rank))
            except ray.exceptions.ActorUnavailableError:
                pass  # Ray does not know yet
            except ray.exceptions.RayActorError as error:
                if rank in ranks:
                    raise OutriggerError(lowlevel.E_PEER_DEAD, f"rank {rank} is {self._place.actors[rank]!r}, which is dead: {_first_line(error)}; give all ranks a list "
                                         "with another actor in its place") from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".")


def _over_nodes(context: Context, board: _Board, name: str, nodes: list[str], address: str) -> Comm:
    from torch.distributed import TCPStore

    from .torch.gloo import GlooChannel

    place, timeout = board._place, board._timeout
    if place.rank == 0:
        store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
        board.set(f"{name}/store", f"{address} {store.port}")
    else:
        where, port = board.take(f"{name}/store", 0).rsplit(" ", 1)
        store = TCPStore(where, int(port), is_master=False)
    world = Comm.custom(context, GlooChannel(store, place.rank, place.size, address, timeout, board.blame))
    each = nodes.count(nodes[0])
    if each == 1 or any(len(set(nodes[first:first + each])) > 1 or nodes.count(nodes[first]) != each for first in range(0, place.size, each)):
        return world
    across = world.split(place.rank % each, place.rank)
    assert across is not None  # every rank has its place on a node
    host = Comm.shared_memory(context, rank=place.rank % each, world_size=each, job=f"ray {name} {place.rank // each}", timeout=timeout)
    return Comm.hierarchical(world, host, across)
